"""`forebay parcels`: where parcels are, what happened to one, and resume, replay, cancel or annotate them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.errors import Permanent

app = typer.Typer(help="List, show, resume, replay, cancel and annotate parcels.")

DidArgument = Annotated[str, typer.Argument(metavar="DID", help="The parcel.")]
DidsArgument = Annotated[list[str] | None, typer.Argument(metavar="[DID]…", help="Which parcels.")]
FlowFilter = Annotated[str | None, typer.Option("--flow", help="Only of this flow.")]
StateFilter = Annotated[
    str | None, typer.Option("--state", help="Only in this state: ERROR, COMPLETE, QUEUED, COLD_QUEUED, LEASED, …")
]
ActionFilter = Annotated[str | None, typer.Option("--action", help="Only at this action.")]
ClassFilter = Annotated[str | None, typer.Option("--action-class", help="Only at a step of this action class.")]
ErrorFilter = Annotated[str | None, typer.Option("--error", help="Only with an error that holds this text.")]
SinceFilter = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only those cut then or later.")]
BeforeFilter = Annotated[str | None, typer.Option("--before", metavar="TIME", help="Only those cut before.")]


@app.command("list")
def list_parcels(
    flow: FlowFilter = None,
    state: StateFilter = None,
    action: ActionFilter = None,
    action_class: ClassFilter = None,
    error: ErrorFilter = None,
    since: SinceFilter = None,
    before: BeforeFilter = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at the most.")] = 100,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List parcels, the newest first."""
    chosen = _chosen(flow, state, action, action_class, error, since, before)
    with connected(url, api_key) as client:
        found = client.parcels(**chosen, limit=limit)
    if output_format is Format.JSON:
        output.show_json(found)
        return
    rows = [
        (
            one["did"],
            one["flow"],
            _state(one),
            one["action"],
            one["actionClass"],
            one["attempts"],
            one["messages"],
            f"{one['queue']} {one['firstSeq']}-{one['lastSeq']}",
            one["createdAt"][:19],
            one["worker"] or one["error"].partition("\n")[0],
        )
        for one in found
    ]
    heads = ("did", "flow", "state", "action", "class", "attempts", "messages", "of", "cut at", "worker or error")
    output.show_table(heads, rows, right=("attempts", "messages"))


def _state(one: dict[str, Any]) -> str:
    """Of a parcel that is under way its step says more, and when it is tried again."""
    state: str = one["stepState"] if one["state"] == "IN_FLIGHT" and one["stepState"] else one["state"]
    return f"{state}, again at {one['dueAt'][11:19]}" if one["dueAt"] else state


@app.command()
def show(
    did: DidArgument,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Show a parcel and everything that happened to it."""
    with connected(url, api_key) as client:
        found = client.parcel(checked_text(did))
    if output_format is Format.JSON:
        output.show_json(found)
        return
    parcel = found["parcel"]
    for name, value in _facts(found):
        if value not in ("", None, [], {}):
            output.say(f"{name:<12}{value}")
    output.say()
    rows = [
        (
            event["at"][:23],
            event["event"],
            event["action"],
            event["attempt"] or "",
            event["worker"],
            _seconds(event),
            *("" if event[key] is None else event[key] for key in ("rowsIn", "rowsOut", "filtered", "bad")),
            event["text"].partition("\n")[0],  # the last error is shown as a whole below
        )
        for event in found["events"]
    ]
    numbers = ("attempt", "seconds", "in", "out", "filtered", "bad")
    heads = ("at", "event", "action", "attempt", "worker", "seconds", "in", "out", "filtered", "bad", "text")
    output.show_table(heads, rows, right=numbers)
    if parcel["error"]:
        output.say()
        output.say(f"error: {parcel['error']}")


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    parcel = found["parcel"]
    return [
        ("parcel", parcel["did"]),
        ("flow", f"{parcel['flow']}, version {parcel['version']}"),
        ("state", _state(parcel)),
        ("at", f"{parcel['action']} ({parcel['actionClass']})" if parcel["action"] else ""),
        ("messages", f"{parcel['messages']}: {parcel['queue']} {parcel['firstSeq']} to {parcel['lastSeq']}"),
        ("attempts", parcel["attempts"]),
        ("cut", parcel["createdAt"]),
        ("finished", parcel["finishedAt"]),
        ("annotations", " ".join(f"{key}={value}" for key, value in sorted(parcel["annotations"].items()))),
        ("parent", parcel["parent"]),
        ("children", " ".join(found["children"])),
        ("joined from", " ".join(found["joined"])),
    ]


def _seconds(event: dict[str, Any]) -> str:
    if event["startedAt"] is None:
        return ""
    took = datetime.fromisoformat(event["at"]) - datetime.fromisoformat(event["startedAt"])
    return f"{took.total_seconds():.3f}"


@app.command()
def resume(
    dids: DidsArgument = None,
    flow: FlowFilter = None,
    action: ActionFilter = None,
    action_class: ClassFilter = None,
    error: ErrorFilter = None,
    since: SinceFilter = None,
    before: BeforeFilter = None,
    is_all: Annotated[bool, typer.Option("--all", help="Without any choice: all that are in ERROR.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Queue parcels again that are in ERROR, at their old place."""
    chosen = _chosen(flow, None, action, action_class, error, since, before)
    _refuse_nothing(dids, chosen, is_all)
    with connected(url, api_key) as client:
        count = client.resume_parcels([checked_text(did) for did in dids or ()], **chosen)
    output.say(f"resumed {count}")


@app.command()
def cancel(
    dids: DidsArgument = None,
    flow: FlowFilter = None,
    state: StateFilter = None,
    action: ActionFilter = None,
    action_class: ClassFilter = None,
    error: ErrorFilter = None,
    since: SinceFilter = None,
    before: BeforeFilter = None,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """End parcels that are not finished. Their messages stay in the queue; `replay` sends one through again."""
    chosen = _chosen(flow, state, action, action_class, error, since, before)
    _refuse_nothing(dids, chosen, False)
    with connected(url, api_key) as client:
        count = client.cancel_parcels([checked_text(did) for did in dids or ()], **chosen)
    output.say(f"cancelled {count}")


@app.command()
def replay(did: DidArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Send the messages of a parcel through its flow again, as a new parcel."""
    with connected(url, api_key) as client:
        output.say(f"replayed as {client.replay_parcel(checked_text(did))}")


@app.command()
def annotate(
    did: DidArgument,
    words: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="The annotations.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Also those that have another value.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Add annotations to a parcel."""
    pairs = [checked_text(word).partition("=") for word in words]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise Permanent(f"{key!r} is no annotation", remedy="Write KEY=VALUE")
    with connected(url, api_key) as client:
        found = client.annotate_parcel(checked_text(did), {key: value for key, _, value in pairs}, overwrite=overwrite)
    output.say(" ".join(f"{key}={value}" for key, value in sorted(found["annotations"].items())))


def _refuse_nothing(dids: list[str] | None, chosen: dict[str, Any], is_all: bool) -> None:
    if not dids and not any(value is not None for value in chosen.values()) and not is_all:
        raise Permanent("no parcel was named", remedy="Name dids, or say which with --flow, --error, …")


def _chosen(
    flow: str | None,
    state: str | None,
    action: str | None,
    action_class: str | None,
    error: str | None,
    since: str | None,
    before: str | None,
) -> dict[str, Any]:
    named = {"flow": flow, "state": state, "action": action, "action_class": action_class, "error": error}
    words = {name: None if value is None else checked_text(value) for name, value in named.items()}
    return {**words, "since": _time(since, "--since"), "before": _time(before, "--before")}


def _time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Permanent(f"{option} {text!r} is no time", remedy="Write it like 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
