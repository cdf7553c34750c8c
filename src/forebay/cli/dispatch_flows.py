"""The part of `forebay flows` that is about flows of dispatch: define, show and stop them, and resume policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.client import Client, Refused
from forebay.errors import Permanent

policies = typer.Typer(help="Policies by which errors are resumed: list, set, remove.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The flow.")]
PolicyArgument = Annotated[str, typer.Argument(metavar="NAME", help="The policy.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML or JSON file.")]
FLOW_COUNTS = ("queued", "cold", "leased", "joining", "exporting", "errors", "lost")
FLOW_HEADS = ("flow", "state", "source", "steps", *FLOW_COUNTS, "reason")


def define(
    words: Annotated[list[str], typer.Argument(metavar="[NAME] FILE", help="A YAML or JSON file, and a flow's name.")],
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Define a flow of dispatch by the `source` and `steps` in a file; without NAME the file has the `name` too.

    A file without NAME may also hold a list of flows.
    """
    *named, file = words
    if len(named) > 1:
        raise typer.BadParameter("give a file, or a name and a file")
    flows = _entries(Path(file), checked_text(named[0]) if named else "")
    with connected(url, api_key) as client:
        for name, flow in flows:
            defined = client.define_flow(name, flow)
            output.say(f"{name}: version {defined['version']}, {defined['state']}")


def show(
    name: NameArgument,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Show a flow of dispatch: its definition, how far its source is cut, and where its parcels are."""
    with connected(url, api_key) as client:
        found = client.flow(checked_text(name))
    if output_format is Format.JSON:
        output.show_json(found)
        return
    show_flows([found])
    output.say()
    output.say(yaml.safe_dump(found["definition"], sort_keys=False).rstrip())


def stop(name: NameArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Cut the source of a flow of dispatch no more, until it is resumed. Its parcels go on."""
    with connected(url, api_key) as client:
        client.stop_flow(checked_text(name))
    output.say(f"{name}: stopped")


def forget(name: NameArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Forget a flow of dispatch whose parcels are all finished."""
    with connected(url, api_key) as client:
        client.forget_flow(checked_text(name))
    output.say(f"{name}: forgotten")


@policies.command("list")
def list_policies(
    url: UrlOption = DEFAULT_URL, api_key: KeyOption = None, output_format: OutputOption = Format.TABLE
) -> None:
    """List resume policies in the order in which they are tried."""
    with connected(url, api_key) as client:
        found = client.policies()
    if output_format is Format.JSON:
        output.show_json(found)
        return
    rows = [
        (
            one["name"],
            one["priority"],
            one["errorText"],
            one["flow"],
            one["action"],
            one["maxAttempts"],
            f"{one['delaySeconds']:g} s" + (f" to {one['maxDelaySeconds']:g} s" if one["random"] else ""),
            "" if one["random"] else f"{one['multiplier']:g}",
        )
        for one in found
    ]
    heads = ("policy", "priority", "error holds", "flow", "action", "attempts", "delay", "multiplier")
    output.show_table(heads, rows, right=("priority", "attempts", "multiplier"))


@policies.command("set")
def set_policies(file: FileArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Set the policies of a file: one with `name` and what it concerns, or a list of them."""
    with connected(url, api_key) as client:
        for name, policy in _entries(file):
            defined = client.set_policy(name, policy)
            output.say(f"{name}: priority {defined['priority']}")


@policies.command("remove")
def remove_policy(name: PolicyArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Remove a resume policy."""
    with connected(url, api_key) as client:
        client.remove_policy(checked_text(name))
    output.say(f"{name}: removed")


def show_flows(found: list[dict[str, Any]]) -> None:
    """Flows of dispatch as a table."""
    rows = [
        (
            one["name"],
            one["state"],
            _source(one["definition"]["source"]),
            len(one["definition"]["steps"]),
            *(one.get(key, 0) for key in FLOW_COUNTS),
            one["reason"],
        )
        for one in found
    ]
    output.show_table(FLOW_HEADS, rows, right=FLOW_HEADS[3:-1])


def set_state(client: Client, name: str, *, is_paused: bool) -> bool:
    """Pause or resume a flow of dispatch; False when there is none of the name."""
    try:
        _ = client.pause_flow(name) if is_paused else client.resume_flow(name)
    except Refused as refused:
        if refused.status != 404:
            raise
        return False
    return True


def _source(source: dict[str, Any]) -> str:
    kind = source.get("kind", "queue")
    return str({"queue": source.get("queue"), "timer": f"cron {source.get('cron')}"}.get(kind, "errors"))


def _entries(file: Path, name: str = "") -> list[tuple[str, dict[str, Any]]]:
    """What a file defines, each with its name: the given one, or its own."""
    found = _read(file)
    if name:
        if not isinstance(found, dict):
            raise Permanent(f"{file}: is not one definition", remedy="Leave out NAME for a list")
        return [(name, found)]
    return [(_name_of(one, file), one) for one in (found if isinstance(found, list) else [found])]


def _read(file: Path) -> Any:
    try:
        found = yaml.safe_load(file.read_text())
    except OSError as error:
        raise Permanent(f"{file}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Permanent(f"{file}: is neither YAML nor JSON: {error}") from None
    if not found:
        raise Permanent(f"{file}: is empty")
    return found


def _name_of(one: Any, file: Path) -> str:
    name = one.get("name") if isinstance(one, dict) else None
    if not isinstance(name, str) or not name:
        raise Permanent(f"{file}: an entry has no name", remedy="Give each one a `name`")
    return checked_text(name)
