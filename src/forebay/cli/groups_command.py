"""`forebay groups`: how far each is behind, forgetting one, and setting where it reads next."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from forebay.cli import output
from forebay.cli.listing import InternalOption, ListingGroup, word_of
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected, place_of
from forebay.errors import Permanent

PATH = "/api/v1/consumer-groups"

app = typer.Typer(cls=ListingGroup, help="List, seek and delete groups. `forebay groups` alone lists them.")


@app.command("list")
def list_groups(
    is_internal: InternalOption = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List groups and how far they are behind, in messages and in seconds."""
    with connected(url, api_key) as client:
        found = client.get("/api/v1/consumer-groups", {"internal": word_of(is_internal)})
    if output_format is Format.JSON:
        output.show_json(found)
        return
    numbers = ("lag", "seconds", "partitions behind", "leased")
    rows = [
        (
            group["name"],
            group["queueName"],
            group["state"],
            group["totalLag"],
            f"{group['maxTimeLag']:.1f}",
            group["partitionsWithLag"],
            group["leased"],
        )
        for group in found
    ]
    output.show_table(("group", "queue", "state", *numbers), rows, right=numbers)


@app.command()
def seek(
    address: Annotated[str, typer.Argument(metavar="QUEUE[/PARTITION][@GROUP]", help="Which group, and where.")],
    seq: Annotated[
        int | None, typer.Option("--seq", min=0, help="To the message with this seq; the first is 1.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="To the first message of this time (ISO 8601, UTC).")
    ] = None,
    to_end: Annotated[bool, typer.Option("--to-end", help="Behind everything there is.")] = False,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Set where a group reads next, and tell how many messages that skips and repeats. Its leases end."""
    if [seq is not None, time is not None, to_end].count(True) != 1:
        raise Permanent("where to is not clear", remedy="Give exactly one of --seq, --time and --to-end")
    place = place_of(address)
    moment = None if time is None else _moment(time)
    with connected(url, api_key) as client:
        found = client.preview_seek(place, seq=seq, time=moment, to_end=to_end)
        if not is_dry_run:
            # To the seq that the figures are about: what was pushed since is not skipped.
            client.seek(place, seq=found["fromSeq"])
    if output_format is Format.JSON:
        output.show_json({**found, "isDone": not is_dry_run})
    else:
        _tell(found, is_dry_run=is_dry_run)


@app.command()
def delete(
    address: Annotated[str, typer.Argument(metavar="QUEUE@GROUP", help="Which group on which queue.")],
    is_meant: Annotated[bool, typer.Option("--yes", help="Delete it without asking.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Forget a group on a queue: its place and its leases. One that pops again is new, and gets all that is kept."""
    place = place_of(address)
    if "@" not in address or place.partition is not None:
        raise Permanent(f"{address!r} is no group", remedy="Write QUEUE@GROUP; a group is forgotten on a whole queue")
    with connected(url, api_key) as client:
        if (place.group, place.queue) not in {(one["name"], one["queueName"]) for one in client.groups(internal=True)}:
            raise Permanent(
                f"there is no group {place.group!r} on {place.queue!r}", remedy="`forebay groups` lists them"
            )
        if not is_meant:
            typer.confirm(f"Forget how far {place.group} has come on {place.queue}?", abort=True)
        client.delete(f"{PATH}/{quote(place.group, safe='')}/queues/{quote(place.queue, safe='')}")
    output.say(f"group {place.group} is forgotten on {place.queue}")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(checked_text(text))
    except ValueError:
        raise Permanent(f"{text!r} is not a time", remedy="Write it as 2026-01-31T12:00:00Z") from None


def _tell(found: dict[str, Any], *, is_dry_run: bool) -> None:
    verb = "would go" if is_dry_run else "goes"
    output.say(
        f"group {found['consumerGroup']!r} {verb} to seq {found['fromSeq']:,} of {found['queue']!r}: "
        f"{found['skipped']:,} skipped, {found['repeated']:,} delivered again, {found['waitingAfter']:,} waiting"
    )
    if found["leased"]:
        output.tell(f"{found['leased']:,} of its messages are leased: their consumers' answers are refused after it")
    if found["isNew"]:
        output.tell("there was no such group: a seek makes it")
    if not found["partitions"]:
        output.tell(f"{found['queue']!r} has no such partition: nothing is changed")
