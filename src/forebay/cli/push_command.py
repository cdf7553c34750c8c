"""`forebay push`: messages from the command line, from a pipe or from a file of lines.

A line is a payload; with `--items` it is an item as `POST /api/v1/push` takes it, with its queue and its id:

    {"queue": "orders", "partition": "berlin", "transactionId": "…", "payload": {"id": 7}}
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.push_lines import Line, item, json_payload, requests_of, text_payload
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, connected, target_of
from forebay.client import Client, Pushed
from forebay.errors import ForebayError, Transient


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
    if data is not None and file is not None:
        raise typer.BadParameter("give either JSON or --file with lines of it, not both")
    place = None if address is None else target_of(address)
    read = text_payload if text else json_payload
    with connected(url, api_key) as client:
        if place is None:
            _show_counts(_push_lines(partial(push_items, client), file, batch, item), output_format)
        elif data is None:
            _show_counts(_push_lines(partial(client.push_many, place), file, batch, read), output_format)
        else:
            # Python keeps bytes of an argument that are no text as lone surrogates: here they are bytes again.
            answer = client.push(place, read(data.encode(errors="surrogateescape"), "the argument"))
            if output_format is Format.JSON:
                output.show_json(msgspec.to_builtins(answer))
            else:
                output.say(f"{answer.status}: seq {answer.seq}, receipt {answer.receipt}")


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
    push_many: Callable[[list[object]], list[Pushed]],
    file: Path | None,
    batch: int,
    read: Callable[[bytes, str], object],
) -> Iterator[list[Pushed]]:
    name = str(file or "stdin")
    stream: BinaryIO = file.open("rb") if file else sys.stdin.buffer
    if file is None and sys.stdin.isatty():
        output.tell("reading one message per line from the keyboard; end with Ctrl-D")
    pushed = 0
    with stream, output.progress("pushing", file.stat().st_size if file else None) as advance:
        for lines in requests_of(stream, batch):
            with _telling_where_it_ended(pushed, lines):
                payloads = [read(line.text, f"{name} line {line.number}") for line in lines]
                with _naming_lines(name, lines):
                    answers = push_many(payloads)
            pushed += len(answers)
            yield answers
            advance(sum(len(line.text) for line in lines))


@contextmanager
def _telling_where_it_ended(pushed: int, lines: Sequence[Line]) -> Iterator[None]:
    """A user who has mended the fault goes on from there, and pushes nothing twice."""
    try:
        yield
    except ForebayError as error:
        ended = f"{pushed:,} messages were pushed before; go on from line {lines[0].number:,}"
        error.remedy = f"{error.remedy}. {ended}" if error.remedy else ended
        raise


@contextmanager
def _naming_lines(name: str, lines: Sequence[Line]) -> Iterator[None]:
    numbers = f"lines {lines[0].number:,} to {lines[-1].number:,}"
    try:
        yield
    except ForebayError as error:
        error.message = f"{name} {numbers}: {error.message}"
        if isinstance(error, Transient):
            unknown = f"{numbers.capitalize()} may be stored or not"
            error.remedy = f"{error.remedy}. {unknown}" if error.remedy else unknown
        raise
