"""`forebay log`: look at a commit log, check every byte of it, and mend it.

`inspect` and `verify` change nothing and work while a server has the log open. `salvage` deletes nothing, and refuses
while the log is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import typer

from forebay.cli import output
from forebay.cli.log_choice import ChosenLog, DataDirOption, LogArgument, chosen_logs
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.commitlog.access import not_accessible
from forebay.commitlog.inspection import Inspection, OnProgress, SegmentView, SlotView, Verification
from forebay.commitlog.inspection import inspect as inspect_log
from forebay.commitlog.inspection import verify as verify_log
from forebay.commitlog.salvage import SalvageReport
from forebay.commitlog.salvage import salvage as salvage_log
from forebay.config.units import format_size
from forebay.errors import DamagedRange, ForebayError
from forebay.filesystem import RealFilesystem

app = typer.Typer(help="Inspect, verify and salvage a commit log, by its directory or its queue's name.")

T = TypeVar("T")


@app.command()
def inspect(
    log: LogArgument = None, data_dir: DataDirOption = None, output_format: OutputOption = Format.TABLE
) -> None:
    """Show what a log is made of: manifest slots, segments, seq ranges, sizes."""
    logs = chosen_logs(log, data_dir)
    looked = _Looked(logs, output_format)
    for chosen in logs:
        looked.look(chosen, lambda found: inspect_log(RealFilesystem(), found), _inspection_document, _show_inspection)
    looked.end()


@app.command()
def verify(log: LogArgument = None, data_dir: DataDirOption = None, output_format: OutputOption = Format.TABLE) -> None:
    """Check every CRC, column and seq range of a log. Exits with 1 on damage and tells its exact place."""
    logs = chosen_logs(log, data_dir)
    looked = _Looked(logs, output_format)
    is_good = True
    for chosen in logs:
        with bytes_bar(f"verifying {chosen}") as on_progress:
            look = partial(verify_log, RealFilesystem(), on_progress=on_progress)
            found = looked.look(chosen, look, _verification_document, _show_verification)
        is_good = is_good and (found is None or found.is_good)
    looked.end(is_good=is_good)


@app.command()
def salvage(
    log: LogArgument = None, data_dir: DataDirOption = None, output_format: OutputOption = Format.TABLE
) -> None:
    """Make a damaged log openable again. Deletes nothing: what cannot be read goes to quarantine/.

    A store finds out by itself what a salvage of its logs gave up: it is in its server's log, metrics and audit.
    """
    logs = chosen_logs(log, data_dir)
    looked = _Looked(logs, output_format)
    for chosen in logs:
        with bytes_bar(f"salvaging {chosen}") as on_progress:
            mend = partial(salvage_log, RealFilesystem(), on_progress=on_progress)
            looked.look(chosen, mend, asdict, _show_salvage)
    looked.end()


class _Looked:
    """What was found in one log after the other. Of several, one that cannot be looked at does not hide the others."""

    def __init__(self, logs: list[ChosenLog], output_format: Format) -> None:
        self._is_alone = len(logs) == 1 and logs[0].queue is None
        self._is_json = output_format is Format.JSON
        self._documents: list[dict[str, object]] = []
        self._is_good = True

    def look(
        self,
        chosen: ChosenLog,
        look: Callable[[Path], T],
        document_of: Callable[[T], dict[str, object]],
        show: Callable[[ChosenLog, T], None],
    ) -> T | None:
        try:
            found = _named_refusals(chosen.directory, look)
        except ForebayError as error:
            if self._is_alone:
                raise
            self._is_good = False
            self._documents.append({"queue": chosen.queue, "directory": chosen.directory, "error": str(error)})
            if not self._is_json:
                output.say(f"{chosen}: {error}")
            return None
        own = {} if self._is_alone else {"queue": chosen.queue, "directory": chosen.directory}
        self._documents.append(own | document_of(found))
        if not self._is_json:
            show(chosen, found)
        return found

    def end(self, *, is_good: bool = True) -> None:
        if self._is_json:
            output.show_json(self._documents[0] if self._is_alone else self._documents)
        if not (is_good and self._is_good):
            raise typer.Exit(ExitCode.REFUSED)


def _named_refusals(directory: Path, look: Callable[[Path], T]) -> T:
    try:
        return look(directory)
    except OSError as error:
        raise not_accessible(directory, error) from error


@contextmanager
def bytes_bar(description: str) -> Iterator[OnProgress]:
    """A bar for callers that report bytes done out of a total they learn as they start."""
    done_before = 0
    opened: list[Callable[[float], None]] = []
    with output.progress(description, 1.0) as advance:
        opened.append(advance)

        def on_progress(done: int, total: int) -> None:
            nonlocal done_before
            if total:
                opened[0]((done - done_before) / total)
            done_before = done

        yield on_progress


def _show_inspection(chosen: ChosenLog, found: Inspection) -> None:
    output.say(f"{chosen}: {f'open in {found.owner}' if found.owner else 'not open'}")
    if found.fault:
        output.say(f"cannot be opened: {found.fault}")
    output.say()
    columns = ("slot", "state", "generation", "next seq", "sealed segments", "active segment", "write pos")
    right = ("generation", "next seq", "sealed segments", "write pos")
    output.show_table(columns, [_slot_row(slot) for slot in found.slots], right=right)
    if found.segments:
        output.say()
        numbers = ("first seq", "last seq", "messages", "size", "on disk")
        rows = [_segment_row(view) for view in found.segments]
        output.show_table(("segment", "state", *numbers), rows, right=numbers)
    for title, files in (("not in the manifest", found.unlisted), ("quarantined", found.quarantined)):
        if files:
            output.say()
            output.show_table((title, "size"), files, right=("size",))
    if found.foreign:
        output.say()
        output.show_table(("not the log's own",), [(name,) for name in found.foreign])


def _slot_row(slot: SlotView) -> tuple[object, ...]:
    manifest = slot.manifest
    if manifest is None:
        return (slot.name, slot.fault or "absent", "", "", "", "", "")
    state = "in force" if slot.is_in_force else "other"
    numbers = (manifest.generation, manifest.next_seq, len(manifest.entries))
    return (slot.name, state, *numbers, manifest.path, manifest.write_pos)


def _segment_row(view: SegmentView) -> tuple[object, ...]:
    entry = view.entry
    count = entry.end_seq - entry.start_seq + 1
    on_disk = "MISSING" if view.size_on_disk is None else format_size(view.size_on_disk)
    last_seq = entry.end_seq if count else ""
    state = "active" if view.is_active else "sealed"
    return (entry.path, state, entry.start_seq, last_seq, count, format_size(entry.size), on_disk)


def _show_verification(chosen: ChosenLog, found: Verification) -> None:
    _show_damage(found.damage)
    for note in found.notes:
        output.say(f"note: {note}")
    verdict = "good" if found.is_good else f"{len(found.damage)} damaged ranges"
    if found.owner:
        verdict += f" so far, open in {found.owner}"
    output.say(
        f"{chosen}: {verdict}; {found.messages:,} messages in {found.records:,} records, "
        f"{found.segments:,} segments, {found.size:,} bytes checked"
    )


def _verification_document(found: Verification) -> dict[str, object]:
    return {"ok": found.is_good, **asdict(found)}


def _inspection_document(found: Inspection) -> dict[str, object]:
    return {
        "directory": found.base,
        "owner": found.owner,
        "fault": found.fault,
        "next_seq": found.next_seq,
        "slots": [_slot_document(slot) for slot in found.slots],
        "segments": [
            {
                "path": view.entry.path,
                "state": "active" if view.is_active else "sealed",
                "first_seq": view.entry.start_seq,
                "last_seq": view.entry.end_seq,
                "size": view.entry.size,
                "size_on_disk": view.size_on_disk,
            }
            for view in found.segments
        ],
        "unlisted": [{"path": path, "size": size} for path, size in found.unlisted],
        "quarantined": [{"path": path, "size": size} for path, size in found.quarantined],
        "foreign": list(found.foreign),
    }


def _slot_document(slot: SlotView) -> dict[str, object]:
    manifest = slot.manifest
    document: dict[str, object] = {"name": slot.name, "in_force": slot.is_in_force, "fault": slot.fault}
    if manifest is not None:
        document |= {
            "generation": manifest.generation,
            "next_seq": manifest.next_seq,
            "file_count": len(manifest.entries),
            "file_seq": manifest.file_seq,
            "path": manifest.path,
            "write_pos": manifest.write_pos,
            "msg_count": manifest.msg_count,
        }
    return document


def _show_damage(damage: list[DamagedRange]) -> None:
    if damage:
        rows = [(d.segment, d.position, d.size, _lost(d), d.reason) for d in damage]
        columns = ("damaged segment", "position", "bytes", "messages lost", "reason")
        output.show_table(columns, rows, right=("position", "bytes"))
        output.say()


def _lost(damage: DamagedRange) -> str:
    if damage.last_seq is None:
        return f"from {damage.first_seq}"
    return "none" if damage.last_seq < damage.first_seq else f"{damage.first_seq}-{damage.last_seq}"


def _show_salvage(chosen: ChosenLog, report: SalvageReport) -> None:
    _show_damage(report.damage)
    for name in report.quarantined:
        output.say(f"kept aside: {name}")
    kept = f"{report.messages:,} messages kept, first seq {report.first_seq}, next seq {report.next_seq}"
    if report.changed:
        output.say(f"{chosen}: mended from {report.manifest_from}; {kept}")
    else:
        output.say(f"{chosen}: nothing to mend; {kept}")
