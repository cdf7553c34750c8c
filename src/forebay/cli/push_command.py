"""`forebay push`: messages from the command line, from a pipe or from a file of lines."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, connected
from forebay.client import Pushed
from forebay.errors import Permanent


def push(
    address: Annotated[str, typer.Argument(metavar="QUEUE[/PARTITION]", help="Where to push.")],
    data: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="The payload; without it, lines of JSON from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file of JSON lines (NDJSON).")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is text: push it as a JSON string.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages per request.")] = 500,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Push one message, or a message per line. Every answer means: stored, as durably as its receipt says."""
    with connected(url, api_key) as client:
        if data is not None:
            answer = client.push(address, _payload(data.encode(), "the argument", text=text))
            if output_format is Format.JSON:
                output.show_json(msgspec.to_builtins(answer))
            else:
                output.say(f"{answer.status}: seq {answer.seq}, receipt {answer.receipt}")
            return
        pushed = duplicates = 0
        for answers in _push_lines(client.push_many, address, file, batch, text=text):
            pushed += len(answers)
            duplicates += sum(answer.status == "duplicate" for answer in answers)
    if output_format is Format.JSON:
        output.show_json({"pushed": pushed, "duplicates": duplicates})
    else:
        output.say(f"pushed {pushed:,} messages")


def _push_lines(
    push_many: Callable[[str, list[object]], Any], address: str, file: Path | None, batch: int, *, text: bool
) -> Iterator[list[Pushed]]:
    stream: BinaryIO = file.open("rb") if file else sys.stdin.buffer
    with stream, output.progress("pushing", file.stat().st_size if file else None) as advance:
        lines = enumerate(stream, 1)
        while group := list(itertools.islice(lines, batch)):
            name = str(file or "stdin")
            payloads = [_payload(line, f"{name} line {number}", text=text) for number, line in group if line.strip()]
            if payloads:
                yield push_many(address, payloads)
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
