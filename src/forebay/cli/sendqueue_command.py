"""`forebay sendqueue`: look into a send queue's directory, check every block of it, and mend it.

`inspect` and `verify` change nothing and work while a server has the queue open. `salvage` deletes nothing, and refuses
while the queue is open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli import output
from forebay.cli.log_command import bytes_bar
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.clock import SystemClock
from forebay.config.units import format_size
from forebay.filesystem import RealFilesystem
from forebay.sendqueue import inspection
from forebay.sendqueue.disk.reading import Damage

app = typer.Typer(help="Inspect, verify and salvage the directory of a send queue.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Such as forebay-data/export/NAME.")]


@app.command()
def inspect(directory: Directory, output_format: OutputOption = Format.TABLE) -> None:
    """Show what a send queue is made of: meta file, chunks, what waits."""
    found = inspection.inspect(RealFilesystem(), directory)
    if output_format is Format.JSON:
        output.show_json(found.document())
        return
    if found.open_in:
        output.say(f"open in {found.open_in}: what that process has in memory is not shown")
    if found.meta is None:
        output.say(f"fastqueue.meta: {found.meta_fault}")
    else:
        waiting = f"{found.meta.entry_count} batches wait, {format_size(found.meta.total_bytes)}"
        output.say(f"{waiting}; reader at {found.meta.reader_offset}, writer at {found.meta.writer_offset}")
    rows = [
        (chunk.name, chunk.start, format_size(chunk.size), "yes" if chunk.is_needed else "no") for chunk in found.chunks
    ]
    output.show_table(("chunk", "from", "size", "needed"), rows, right=("from", "size"))
    if found.quarantined:
        output.say(f"{len(found.quarantined)} files in quarantine/")


@app.command()
def verify(directory: Directory, output_format: OutputOption = Format.TABLE) -> None:
    """Read every block and check it. Exits with 1 on damage and tells its exact place."""
    with bytes_bar(f"verifying {directory}") as on_progress:
        found = inspection.verify(RealFilesystem(), directory, on_progress)
    if output_format is Format.JSON:
        output.show_json(found.document())
    else:
        waiting = f"{found.unread} of them wait, {format_size(found.unread_bytes)}"
        output.say(f"{directory}: {found.blocks} blocks, {waiting}{', all good' if found.is_good else ''}")
        if found.meta_fault:
            output.say(f"  fastqueue.meta: {found.meta_fault}")
        _show(found.damages)
    if not found.is_good:
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def salvage(directory: Directory, output_format: OutputOption = Format.TABLE) -> None:
    """Make a damaged send queue sound again. Deletes nothing: what cannot be read is copied to quarantine/."""
    with bytes_bar(f"salvaging {directory}") as on_progress:
        found = inspection.salvage(RealFilesystem(), directory, SystemClock(), on_progress)
    if output_format is Format.JSON:
        output.show_json(found.document())
        return
    output.say(f"{directory}: {found.batches} batches are kept, {format_size(found.bytes)}")
    for note in found.notes:
        output.say(f"  {note}")
    _show(found.lost)


def _show(damages: list[Damage]) -> None:
    for damage in damages:
        count = "one batch" if damage.is_one else "one batch or more"
        output.say(f"  bytes {damage.start}-{damage.end}: {damage.reason}; {count} lost")
