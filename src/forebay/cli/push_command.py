"""`forebay push`: messages from the command line, from a pipe or from a file of lines.

A line is a payload; with `--items` it is an item as `POST /api/v1/push` takes it, with its queue and its id:

    {"queue": "orders", "partition": "berlin", "transactionId": "…", "payload": {"id": 7}}
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, connected
from forebay.client import Client, Pushed
from forebay.errors import Permanent, Transient


def push(
    address: Annotated[
        str | None, typer.Argument(metavar="QUEUE[/PARTITION]", help="Where to push; not with --items.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="The payload; without it, lines of JSON from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file of JSON lines (NDJSON).")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is text: push it as a JSON string.")] = False,
    items: Annotated[
        bool, typer.Option("--items", help="Lines are items with queue, payload, transactionId, as exported.")
    ] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages per request.")] = 500,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Push one message, or a message per line. Every answer means: stored, as durably as its receipt says."""
    if (address is None) != items or (items and (data is not None or text)):
        raise typer.BadParameter("give either QUEUE[/PARTITION] or --items with lines of items")
    with connected(url, api_key) as client:
        if items or address is None:
            _show_counts(_push_lines(partial(push_items, client), file, batch, text=False), output_format)
            return
        if data is not None:
            answer = client.push(address, _payload(data.encode(), "the argument", text=text))
            if output_format is Format.JSON:
                output.show_json(msgspec.to_builtins(answer))
            else:
                output.say(f"{answer.status}: seq {answer.seq}, receipt {answer.receipt}")
            return
        _show_counts(_push_lines(partial(client.push_many, address), file, batch, text=text), output_format)


def push_items(client: Client, items: Sequence[object]) -> list[Pushed]:
    """Push items that have their queues and ids, in order; all are accepted when it returns."""
    answers = msgspec.convert(client.post("/api/v1/push", {"items": items}), list[Pushed])
    failed = [answer.error for answer in answers if answer.status == "failed"]
    if failed:
        raise Transient(f"{len(failed)} of {len(answers)} messages were not accepted: {failed[0]}")
    return answers


def _show_counts(answered: Iterator[list[Pushed]], output_format: Format) -> None:
    pushed = duplicates = 0
    for answers in answered:
        pushed += len(answers)
        duplicates += sum(answer.status == "duplicate" for answer in answers)
    if output_format is Format.JSON:
        output.show_json({"pushed": pushed, "duplicates": duplicates})
    else:
        output.say(f"pushed {pushed:,} messages")


def _push_lines(
    push_many: Callable[[list[object]], Any], file: Path | None, batch: int, *, text: bool
) -> Iterator[list[Pushed]]:
    stream: BinaryIO = file.open("rb") if file else sys.stdin.buffer
    with stream, output.progress("pushing", file.stat().st_size if file else None) as advance:
        lines = enumerate(stream, 1)
        while group := list(itertools.islice(lines, batch)):
            name = str(file or "stdin")
            payloads = [_payload(line, f"{name} line {number}", text=text) for number, line in group if line.strip()]
            if payloads:
                yield push_many(payloads)
            advance(sum(len(line) for _, line in group))


def _payload(given: bytes, origin: str, *, text: bool) -> object:
    """The JSON text as it stands: it is checked, and not decoded and encoded again."""
    if text:
        return given.decode(errors="replace").rstrip("\n")
    try:
        msgspec.json.decode(given)
    except msgspec.DecodeError as error:
        raise Permanent(f"{origin} is not JSON: {error}", remedy="To push it as text, add --text") from None
    return msgspec.Raw(given.strip())
