"""`forebay buffers`: what waits in buffer files, in which state, and getting it out of files that no server drains.

`list`, `show` and `export` change nothing and work beside a running server. A running server offers its failed files to
the store again every second, by itself. `retry` is for files that no server drains any more, such as those of a
machine that is gone: it pushes them to a server that is there, each message under its own id, in the order of the file.
What is stored already is recognised, so that it may be repeated. The file is renamed when all of it is accepted, and
never deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.assemble import queue_cipher
from forebay.broker.encryption import Cipher
from forebay.cli import output
from forebay.cli.buffer_retry import push_line, retry_file
from forebay.cli.buffer_tables import (
    damage_document,
    event_document,
    event_row,
    show_damage,
    show_directory,
    show_events,
    show_server,
    view_document,
)
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, connected
from forebay.cli.settings_flags import with_settings
from forebay.config.load import Loaded, load
from forebay.errors import Permanent
from forebay.ingest.inspection import events_of, view_of

app = typer.Typer(help="List, show, retry and export buffer files.")

BufferFile = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A buffer file: failover.buf, failed/….buf")
]
ServerOption = Annotated[str | None, typer.Option("--server", "--url", help="Ask this server instead of a directory.")]
TargetOption = Annotated[str, typer.Option("--server", "--url", envvar="FOREBAY_URL", help="The server to push to.")]

SHOWN_EVENTS = 100


@app.command("list")
@with_settings
def list_files(
    loaded: Loaded,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The buffer directory; without it, that of the settings.")
    ] = None,
    server: ServerOption = None,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List buffer files: what waits in each, since when, and what is failed, damaged or unknown."""
    is_json = output_format is Format.JSON
    if server is not None:
        with connected(server, api_key) as client:
            status = client.get("/api/v1/status/buffers")
        (output.show_json if is_json else show_server)(status)
        return
    from forebay.assemble import buffer_directory  # brings the whole server, which the other commands do without

    base = directory or buffer_directory(loaded.settings)
    with _named_refusals(base), output.progress("reading", None) as advance:
        view = view_of(base, advance)
    if is_json:
        output.show_json(view_document(view))
    else:
        show_directory(view)


@app.command()
def show(
    file: BufferFile,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help=f"How many events. Default: {SHOWN_EVENTS}; with JSON all.")
    ] = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Show the events of a buffer file, and the bytes of it that hold none. Exits with 1 if there are such."""
    is_json = output_format is Format.JSON
    most = limit if limit is not None or is_json else SHOWN_EVENTS
    cipher = _cipher()
    with _named_refusals(file):
        events = events_of(file)
        shown: list[Any] = [
            event_document(found, cipher) if is_json else event_row(found, cipher) for found in islice(events, most)
        ]
        for _ in events:  # the rest is counted and checked
            pass
    if is_json:
        damaged = [damage_document(damage) for damage in events.damages]
        drained = events.drained_bytes
        output.show_json(
            {"file": file, "count": events.count, "drainedBytes": drained, "events": shown, "damaged": damaged}
        )
    else:
        show_events(file, events, shown)
        show_damage(events.damages)
    if events.damages:
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def retry(
    file: BufferFile,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="Messages per request: fewer, if a queue has little room.")
    ] = 1000,
    server: TargetOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Push a file that no server drains to a server, in order and once; then rename it to FILE.retried.

    Repeat it if it ended early: messages that are stored already are recognised. Exits with 1 if bytes of the file hold
    no message; they stay in the renamed file.
    """
    cipher = _cipher()
    with _named_refusals(file), connected(server, api_key) as client:
        done = retry_file(client, file, cipher, batch=batch)
    if output_format is Format.JSON:
        output.show_json(done.document())
    else:
        output.say(
            f"{file}: {done.pushed:,} messages accepted, of which {done.duplicates:,} were stored already and "
            f"{done.buffered:,} are buffered; now {done.renamed.name}"
        )
        show_damage(done.damages)
    if done.damages:
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def export(
    file: BufferFile,
    to: Annotated[
        Path | None, typer.Option("--to", dir_okay=False, help="Write here, to a new file; without it, to stdout.")
    ] = None,
) -> None:
    """Write a file's messages as lines of JSON that `forebay push --items` takes, ids included.

    Exits with 1 if bytes of the file hold no message; all the others are exported.
    """
    cipher = _cipher()
    with _named_refusals(file):
        events = events_of(file)
        lines = (push_line(found.event, file, cipher) for found in events)
        if to is None:
            for line in lines:
                output.say(line.decode())
        else:
            _write_lines(to, lines)
    output.tell(f"{events.count:,} messages exported")
    if events.damages:
        output.tell(f"{len(events.damages)} damaged ranges: see `forebay buffers show {file}`")
        raise typer.Exit(ExitCode.REFUSED)


def _write_lines(to: Path, lines: Iterator[bytes]) -> None:
    try:
        target = to.open("xb")
    except FileExistsError:
        raise Permanent(f"{to} exists already", remedy="Name another file, or move it away") from None
    with target:
        for line in lines:
            target.write(line + b"\n")


@contextmanager
def _named_refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Permanent(f"{error.filename or path}: {error.strerror or error}") from error


def _cipher() -> Cipher | None:
    """The keys that a server with this environment would have."""
    return queue_cipher(load(environ=os.environ).settings)
