"""`forebay exports`: what leaves, what waits, and what a destination will not take."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected

app = typer.Typer(help="List, pause and resume exports; dead letters of destinations.")
dead = typer.Typer(help="Dead letters of a destination that receivers feed: list, show, replay, purge.")
app.add_typer(dead, name="dead")

PATH = "/api/v1/exports"

Name = Annotated[str, typer.Argument(metavar="NAME", help="An export, or a destination.")]
Destination = Annotated[str, typer.Argument(metavar="DESTINATION", help="A destination.")]


def _path(name: str, *more: str) -> str:
    return "/".join([PATH, quote(checked_text(name), safe=""), *more])


@app.command("list")
def list_exports(
    url: UrlOption = DEFAULT_URL, api_key: KeyOption = None, output_format: OutputOption = Format.TABLE
) -> None:
    """Everything that leaves: from where, to where, how much waits, and the last error."""
    with connected(url, api_key) as client:
        found: list[dict[str, Any]] = client.get(PATH)["exports"]
    if output_format is Format.JSON:
        output.show_json(found)
        return
    numbers = ("waiting", "sent", "items", "retried", "dead", "dropped")
    rows = [
        (
            one["name"],
            one["source"],
            one["destination"],
            "paused" if one["paused"] else {"closed": "running"}.get(one["breaker"], f"breaker {one['breaker']}"),
            "-" if one["waiting"] is None else one["waiting"],
            one["sent"],
            one["sentItems"],
            one["retried"],
            one["dead"],
            one["dropped"],
            one["lastError"],
        )
        for one in found
    ]
    output.show_table(("name", "from", "to", "state", *numbers, "last error"), rows, right=numbers)


@app.command()
def pause(name: Name, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Send no more until it is resumed, on all servers of the store. Nothing is lost: it waits."""
    with connected(url, api_key) as client:
        client.post(_path(name, "pause"), {})
    output.say(f"{name} is paused")


@app.command()
def resume(name: Name, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Send again."""
    with connected(url, api_key) as client:
        client.post(_path(name, "resume"), {})
    output.say(f"{name} is running")


@dead.command("list")
def list_dead(
    destination: Destination,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Batches that the destination refused for good, and why."""
    with connected(url, api_key) as client:
        found: list[dict[str, Any]] = client.get(_path(destination, "dead-letters"))["letters"]
    if output_format is Format.JSON:
        output.show_json(found)
        return
    rows = [(one["id"], one["buriedAt"], one["kind"], one["items"], one["error"], one["message"]) for one in found]
    output.show_table(("id", "since", "kind", "items", "error", "message"), rows, right=("items",))


@dead.command()
def show(
    destination: Destination,
    letter: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """One of them, as JSON."""
    with connected(url, api_key) as client:
        output.show_json(client.get(_path(destination, "dead-letters", quote(checked_text(letter), safe=""))))


@dead.command()
def replay(destination: Destination, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Put them back into the send queue, the oldest first."""
    with connected(url, api_key) as client:
        count = client.post(_path(destination, "dead-letters", "replay"), {})["count"]
    output.say(f"{count} batches are in the send queue of {destination} again")


@dead.command()
def purge(
    destination: Destination,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    is_meant: Annotated[bool, typer.Option("--yes", help="Delete them without asking.")] = False,
) -> None:
    """Delete them. What they hold is lost."""
    if not is_meant:
        typer.confirm(f"Delete all dead letters of {destination}?", abort=True)
    with connected(url, api_key) as client:
        count = client.post(_path(destination, "dead-letters", "purge"), {})["count"]
    output.say(f"{count} dead letters of {destination} are deleted")
