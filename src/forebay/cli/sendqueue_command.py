"""`forebay sendqueue`: look into a send queue's directory, check every block of it, and mend it.

`inspect` and `verify` change nothing and work while a server has the queue open. `salvage` deletes nothing, and refuses
while the queue is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from forebay.cli import output
from forebay.cli.log_command import bytes_bar
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.clock import SystemClock
from forebay.config.units import format_size
from forebay.export.dead_letters import DeadLetters
from forebay.filesystem import RealFilesystem
from forebay.sendqueue import inspection
from forebay.sendqueue.disk.reading import Damage
from forebay.sendqueue.inspection import Inspection, Salvaged, Verification

app = typer.Typer(help="Inspect, verify and salvage the directory of a send queue.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Such as forebay-data/export/NAME.")]


Found = TypeVar("Found")


@app.command()
def inspect(directory: Directory, output_format: OutputOption = Format.TABLE) -> None:
    """Show what a send queue is made of: meta file, chunks, what waits; its failover queue and dead letters too."""
    found = _of_each(directory, lambda one: inspection.inspect(RealFilesystem(), one))
    dead = len(DeadLetters(RealFilesystem(), directory, SystemClock()).ids())
    if output_format is Format.JSON:
        output.show_json(_document(directory, found, Inspection.document) | {"dead_letters": dead})
        return
    for one, seen in found.items():
        if one != directory:
            output.say(f"{one.name}/")
        _show_inspection(seen)
    if dead:
        output.say(f"{dead} dead letters in dead/: see `forebay exports dead list {directory.name}`")


def _show_inspection(found: Inspection) -> None:
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
    """Read every block and check it, of failover/ and first/ too. Exits with 1 on damage and tells its exact place."""

    def verified(one: Path) -> Verification:
        with bytes_bar(f"verifying {one}") as on_progress:
            return inspection.verify(RealFilesystem(), one, on_progress)

    found = _of_each(directory, verified)
    is_good = all(one.is_good for one in found.values())
    if output_format is Format.JSON:
        output.show_json(_document(directory, found, Verification.document) | {"ok": is_good})
    else:
        for one, seen in found.items():
            waiting = f"{seen.unread} of them wait, {format_size(seen.unread_bytes)}"
            output.say(f"{one}: {seen.blocks} blocks, {waiting}{', all good' if seen.is_good else ''}")
            if seen.meta_fault:
                output.say(f"  fastqueue.meta: {seen.meta_fault}")
            _show(seen.damages)
    if not is_good:
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def salvage(directory: Directory, output_format: OutputOption = Format.TABLE) -> None:
    """Make a damaged send queue sound again, with failover/ and first/ in it. Deletes nothing: what cannot be read is
    copied to quarantine/."""

    def salvaged(one: Path) -> Salvaged:
        with bytes_bar(f"salvaging {one}") as on_progress:
            return inspection.salvage(RealFilesystem(), one, SystemClock(), on_progress)

    found = _of_each(directory, salvaged)
    if output_format is Format.JSON:
        output.show_json(_document(directory, found, Salvaged.document))
        return
    for one, seen in found.items():
        output.say(f"{one}: {seen.batches} batches are kept, {format_size(seen.bytes)}")
        for note in seen.notes:
            output.say(f"  {note}")
        _show(seen.lost)


def _of_each(directory: Path, look: Callable[[Path], Found]) -> dict[Path, Found]:
    """What `look` finds in each queue of the directory. Raises PathUnusable if there is none."""
    return {one: look(one) for one in inspection.queues_in(RealFilesystem(), directory)}


def _document(
    directory: Path, found: Mapping[Path, Found], document: Callable[[Found], dict[str, object]]
) -> dict[str, object]:
    """The queue itself, and the queues in it by the names of their folders."""
    parts = {one.name: document(seen) for one, seen in found.items() if one != directory}
    own = document(found[directory]) if directory in found else {"directory": str(directory)}
    return own | {"parts": parts}


def _show(damages: list[Damage]) -> None:
    for damage in damages:
        count = "one batch" if damage.is_one else "one batch or more"
        output.say(f"  bytes {damage.start}-{damage.end}: {damage.reason}; {count} lost")
