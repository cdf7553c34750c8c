"""Opening a log: from the manifest and the end of the active segment to a state that can be written on.

1. Read the manifest in force. None: a fresh log, but only where there is nothing that could have been one.
2. Scan the active segment from `write_pos`. Good records behind it are adopted. Damage with good records behind it is
   reported and left in place. What is unreadable at the very end is a torn write: it was never acknowledged; it is
   copied to `quarantine/`, counted, and cut off. Zeros at the end are space made ready (`active_file`): cut off.
3. Adopt a newer segment that starts where this one ends, if there is one (an older manifest may have been put back).
4. If anything was adopted or cut, sync the segment and write a manifest. The sync comes first: bytes that a killed
   process left in the page cache must be on the disk before a reader gets them.

The time this takes depends on what was written since the last manifest, at most one segment, and never on how much is
stored: sealed segments are neither listed nor opened.

| crash                                            | found at the next opening                             |
|--------------------------------------------------|-------------------------------------------------------|
| while a group is written or synced               | the group whole, or cut off; never acknowledged       |
| after the sync, before the answer                | the group whole: adopted                              |
| in a roll or a close, before zeros are cut off   | zeros behind the last record: not read, or cut off    |
| in a roll, before the new manifest is in force   | the old segment is active; the new file is empty      |
| in a roll, after it                              | the new, empty segment is active                      |
| in `truncate_before`, after the manifest         | files that no manifest lists; the next one sweeps them|
| in recovery itself                               | the same as before it, once more                      |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from forebay.commitlog import layout
from forebay.commitlog.layout import POINTER, QUARANTINE, SLOTS
from forebay.commitlog.manifest import VERSION, Entries, Manifest, ManifestStore
from forebay.commitlog.scan import SegmentScan
from forebay.commitlog.state import LogState
from forebay.errors import (
    DamagedRange,
    LogUnopenable,
    ManifestCorrupted,
    ManifestNotFound,
    SegmentMissing,
)
from forebay.filesystem import File, Filesystem, Kind, write_fully

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening found behind the manifest."""

    is_fresh: bool = False
    messages_adopted: int = 0
    bytes_adopted: int = 0
    torn_bytes: int = 0
    torn_kept_in: str | None = None
    damage: tuple[DamagedRange, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Nothing had to be done: the last process closed the log, or wrote nothing since."""
        return not (self.bytes_adopted or self.torn_bytes or self.damage)


@dataclass(slots=True)
class Recovered:
    state: LogState
    generation: int
    file: File
    report: RecoveryReport
    is_of_old_version: bool = False
    """Whether the active segment may hold records of an older version."""


def recover(filesystem: Filesystem, base: Path, store: ManifestStore, day: str, chunk_bytes: int) -> Recovered:
    """The log's state, everything in it durable, its active segment open for writing."""
    manifest = read_manifest(filesystem, base, store)
    if manifest is None:
        return _make_fresh(filesystem, base, store, day)
    state = LogState(
        entries=manifest.entries,
        path=manifest.path,
        position=manifest.write_pos,
        next_seq=manifest.next_seq,
        file_seq=manifest.file_seq,
    )
    recovered = Recovered(state, manifest.generation, _open_active(filesystem, base, manifest), RecoveryReport())
    try:
        _adopt(filesystem, base, recovered, chunk_bytes)
        recovered.is_of_old_version = manifest.version < VERSION
        if not recovered.report.is_clean or recovered.is_of_old_version:
            # Of an old version: also before anything new is written, which an older Forebay would take for damage.
            recovered.file.sync()
            recovered.generation += 1
            store.write(recovered.state.manifest(recovered.generation))
        if not recovered.report.is_clean:
            _log(base, recovered.report)
    except BaseException:
        recovered.file.close()
        raise
    return recovered


def read_manifest(filesystem: Filesystem, base: Path, store: ManifestStore) -> Manifest | None:
    """The manifest in force; None only where nothing says that there ever was a message."""
    pointer = filesystem.status(base / POINTER)
    if pointer.kind is Kind.ABSENT or (pointer.kind is Kind.FILE and pointer.size == 0):
        found = sign_of_messages(filesystem, base, store)
        if found is None:
            return None
        if pointer.kind is Kind.ABSENT:
            raise ManifestNotFound(base, POINTER, found)
        raise ManifestCorrupted(base, POINTER, f"is empty, although {found}")
    return store.read()


def sign_of_messages(filesystem: Filesystem, base: Path, store: ManifestStore) -> str | None:
    """What says that the log has, or had, a message; None when nothing does."""
    for path in layout.segments(filesystem, base):
        if size := filesystem.status(base / path).size:
            return f"{path} holds {size} bytes"
    for slot, name in SLOTS.items():
        try:
            manifest = store.read_slot(slot)
        except ManifestCorrupted:
            continue  # the first manifest of a fresh log may be torn: no message was accepted before it was whole
        if manifest is not None and (manifest.next_seq > 1 or len(manifest.entries)):
            return f"{name} tells of messages up to {manifest.next_seq - 1}"
    return None


def _make_fresh(filesystem: Filesystem, base: Path, store: ManifestStore, day: str) -> Recovered:
    path = layout.segment_path(day, 1)
    layout.ensure_directory(filesystem, base, day)
    file = filesystem.open(base / path, write=True, create=True)
    try:
        filesystem.sync_directory((base / path).parent)
        state = LogState(entries=Entries(), path=path, position=0, next_seq=1, file_seq=1)
        store.write(state.manifest(generation=1))
    except BaseException:
        file.close()
        raise
    return Recovered(state, 1, file, RecoveryReport(is_fresh=True))


def _open_active(filesystem: Filesystem, base: Path, manifest: Manifest) -> File:
    status = filesystem.status(base / manifest.path)
    if status.kind is not Kind.FILE:
        fault = f"the active segment is a {status.kind.value}, not a file"
        if status.kind is Kind.ABSENT:
            fault = f"the active segment is missing, the manifest knows {manifest.msg_count} messages in it"
        first, last = layout.first_seq_of(manifest.path), manifest.next_seq - 1
        damage = DamagedRange(manifest.path, 0, manifest.write_pos, first, last, fault)
        raise SegmentMissing(base, manifest.path, fault, damage)
    if status.size < manifest.write_pos:
        raise LogUnopenable(
            base / manifest.path,
            f"the active segment has {status.size} bytes, the manifest knows {manifest.write_pos}",
            remedy=f"Run `forebay log salvage {base}`; it deletes nothing",
        )
    return filesystem.open(base / manifest.path, write=True)


def _adopt(filesystem: Filesystem, base: Path, recovered: Recovered, chunk_bytes: int) -> None:
    """Take over what stands behind the manifest, in the active segment and in segments that follow on it."""
    while True:
        _scan_tail(filesystem, base, recovered, chunk_bytes)
        path = _following_segment(filesystem, base, recovered.state)
        if path is None:
            return
        recovered.file.sync()
        recovered.file.close()
        state = recovered.state
        recovered.file = filesystem.open(base / path, write=True)
        recovered.state = LogState(
            entries=state.entries.with_entry(state.active_entry()) if state.position else state.entries,
            path=path,
            position=0,
            next_seq=state.next_seq,
            file_seq=state.file_seq + 1,
        )


def _scan_tail(filesystem: Filesystem, base: Path, recovered: Recovered, chunk_bytes: int) -> None:
    state, file = recovered.state, recovered.file
    end = file.size()
    if end == state.position:
        return
    scan = SegmentScan(
        file, state.path, position=state.position, end=end, next_seq=state.next_seq, chunk_bytes=chunk_bytes
    )
    damage = [found for found in scan if isinstance(found, DamagedRange)]
    torn = damage.pop() if damage and damage[-1].position >= scan.position else None
    report = recovered.report
    kept_in = None
    if torn:
        kept_in = quarantine(filesystem, base, file, state.path, torn.position, torn.size, "torn")
    if scan.position < end:
        file.truncate(scan.position)
    recovered.report = replace(
        report,
        messages_adopted=report.messages_adopted + scan.next_seq - state.next_seq,
        bytes_adopted=report.bytes_adopted + scan.position - state.position,
        torn_bytes=report.torn_bytes + (torn.size if torn else 0),
        torn_kept_in=kept_in or report.torn_kept_in,
        damage=(*report.damage, *damage),
    )
    recovered.state = state._replace(position=scan.position, next_seq=scan.next_seq)


def _following_segment(filesystem: Filesystem, base: Path, state: LogState) -> str | None:
    """A segment with bytes in it that starts with the next seq, in the active segment's day or a later one."""
    for day in layout.days(filesystem, base, since=layout.day_of_path(state.path)):
        path = layout.segment_path(day, state.next_seq)
        status = filesystem.status(base / path)
        if path != state.path and status.kind is Kind.FILE and status.size > 0:
            return path
    return None


def quarantine(filesystem: Filesystem, base: Path, file: File, segment: str, position: int, size: int, why: str) -> str:
    """Copy bytes of a segment aside, durably; returns the copy's path relative to the base."""
    layout.ensure_directory(filesystem, base, QUARANTINE)
    name = _unused(filesystem, base, f"{QUARANTINE}/{segment.replace('/', '-')}.{position}.{why}")
    copy = filesystem.open(base / name, write=True, create=True)
    try:
        done = 0
        while done < size:
            piece = file.read_at(min(1 << 20, size - done), position + done)
            if not piece:
                break
            done += write_fully(copy, [piece], done)
        copy.sync()
    finally:
        copy.close()
    filesystem.sync_directory(base / QUARANTINE)
    return name


def _unused(filesystem: Filesystem, base: Path, name: str) -> str:
    """The name, with a number behind it if something was put aside under it before."""
    candidate, number = name, 1
    while filesystem.status(base / candidate).kind is not Kind.ABSENT:
        number += 1
        candidate = f"{name}.{number}"
    return candidate


def _log(base: Path, report: RecoveryReport) -> None:
    logger.warning(
        "%s: recovered: %d messages adopted, %d torn bytes set aside, %d damaged ranges",
        base,
        report.messages_adopted,
        report.torn_bytes,
        len(report.damage),
        extra={"action": "log_recovered"},
    )
