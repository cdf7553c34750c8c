"""`forebay queues`: what there is, and making, showing, changing and deleting one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from forebay.cli import output
from forebay.cli.listing import InternalOption, ListingGroup, word_of
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.client import Client, Refused
from forebay.config.units import format_duration, format_size
from forebay.errors import Permanent

FOR_EVER = "for ever"
PATH = "/api/v1/resources/queues"

app = typer.Typer(cls=ListingGroup, help="List, show, configure and delete queues. `forebay queues` alone lists them.")

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]


@app.command("list")
def list_queues(
    is_internal: InternalOption = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List queues: partitions, messages kept, waiting, leased, dead, and how long finished messages stay."""
    with connected(url, api_key) as client:
        found = client.get("/api/v1/resources/queues", {"limit": 1000, "internal": word_of(is_internal)})["queues"]
    if output_format is Format.JSON:
        output.show_json(found)
        return
    numbers = ("partitions", "kept", "waiting", "leased", "dead", "next seq", "size")
    rows = [
        (
            queue["name"],
            queue["partitions"],
            queue["messages"]["total"],
            queue["messages"]["pending"],
            queue["messages"]["processing"],
            queue["messages"]["deadLetter"],
            queue["nextSeq"],
            format_size(queue["sizeBytes"]),
            _kept(queue),
        )
        for queue in found
    ]
    output.show_table(("queue", *numbers, "finished ones stay"), rows, right=numbers)
    if any(_kept(queue) == FOR_EVER for queue in found):
        output.tell(
            f"Messages that stay {FOR_EVER} fill the disk: "
            "`forebay queues configure QUEUE completedRetentionSeconds=86400`."
        )


@app.command()
def show(
    queue: QueueArgument,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Show a queue: what it holds, its partitions, and every option with its value."""
    with connected(url, api_key) as client:
        found = client.get(_path(queue), {"limit": 10_000})
    if output_format is Format.JSON:
        output.show_json(found)
        return
    counts = found["totals"]
    output.say(f"{found['name']}: {counts['total']:,} messages, {format_size(found['sizeBytes'])} bytes")
    output.say(
        f"{counts['pending']:,} waiting, {counts['processing']:,} leased, {counts['deadLetter']:,} dead; "
        f"next seq {found['nextSeq']:,}"
    )
    _show_options(found["config"])
    numbers = ("messages", "last seq")
    rows = [(each["name"], each["messages"], each["lastSeq"], each["lastActivity"]) for each in found["partitions"]]
    output.show_table(("partition", *numbers, "newest message"), rows, right=numbers)


@app.command()
def configure(
    queue: QueueArgument,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]…", help="Such as leaseTime=60 deadLetterQueue=false.")
    ] = None,
    is_anew: Annotated[bool, typer.Option("--reset", help="Give every option that is not named its default.")] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", help="What it belongs to, for `pop` by it.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="The task it is for, for `pop` by it.")] = None,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Make a queue, or change the options that are named; the others stay. docs/reference/queue-options.md has all.

    To change a queue that is there needs a key of scope admin, to make one `write` and `read`.
    """
    given: dict[str, object] = dict(_option(setting) for setting in settings or [])
    with connected(url, api_key) as client:
        before = _queue_or_none(client, queue) or {"config": {}, "namespace": "", "task": ""}
        answer = client.configure(
            checked_text(queue),
            given if is_anew else {**before["config"], **given},
            namespace=before["namespace"] if namespace is None else checked_text(namespace),
            task=before["task"] if task is None else checked_text(task),
        )
    if output_format is Format.JSON:
        output.show_json(answer)
    else:
        _show_options(answer["options"])


@app.command()
def delete(
    queue: QueueArgument,
    is_meant: Annotated[bool, typer.Option("--yes", help="Delete it without asking.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Delete a queue with its messages, groups and dead letters. What it holds is lost."""
    with connected(url, api_key) as client:
        found = _queue_or_none(client, queue)
        if found is None:
            raise Permanent(f"there is no queue {queue!r}", remedy="`forebay queues` lists those that there are")
        if not is_meant:
            typer.confirm(f"Delete {queue} and its {found['totals']['total']:,} messages?", abort=True)
        client.delete_queue(checked_text(queue))
    output.say(f"queue {queue} is deleted")


def _path(queue: str) -> str:
    return f"{PATH}/{quote(checked_text(queue), safe='')}"


def _queue_or_none(client: Client, queue: str) -> dict[str, Any] | None:
    try:
        return client.get(_path(queue), {"limit": 1})  # type: ignore[no-any-return]
    except Refused as refused:
        if refused.status == 404:
            return None
        raise


def _option(setting: str) -> tuple[str, int | bool]:
    name, _, text = setting.partition("=")
    try:
        return name, msgspec.json.decode(text.encode(errors="replace"), type=int | bool)
    except msgspec.DecodeError:
        raise Permanent(
            f"{setting!r} sets nothing", remedy="Write OPTION=VALUE, the value a whole number, true or false"
        ) from None


def _show_options(options: dict[str, Any]) -> None:
    output.show_table(
        ("option", "value"), [(name, msgspec.json.encode(value).decode()) for name, value in options.items()]
    )


def _kept(queue: dict[str, Any]) -> str:
    """How long messages stay that every group has finished."""
    limits = [seconds for seconds in (queue["keptSeconds"], queue["completedKeptSeconds"]) if seconds]
    return format_duration(timedelta(seconds=min(limits))) if limits else FOR_EVER
