"""Making a damaged log openable again, deleting nothing.

1. The manifest: the one in force if it is good, else the other slot, else one rebuilt from the segments' names.
2. Every segment is scanned. Unreadable bytes are copied to `quarantine/`. Between good records they are then turned
   into a filler (see `block`), which tells readers which messages are lost and lets them step over; at the end of a
   segment they are cut off. Good records are never moved or rewritten.
3. Segments that the manifest does not know and that follow on what it knows are adopted.
4. The old manifest files go to `quarantine/` as well, and a new manifest is put in force. `next_seq` never goes back.

It takes the log's lock, so it refuses while the log is open. Killed half-way it can be run again: step 2 leaves each
segment as it was or mended, and the manifest comes last.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from forebay.clock import Clock, SystemClock
from forebay.commitlog import layout
from forebay.commitlog.access import not_accessible, take_lock
from forebay.commitlog.block import (
    CRC_BYTES,
    CRC_COVERS_PLACE,
    HEADER_BYTES,
    NO_PLACE,
    checksum_of_path,
    checksum_of_place,
    encode_filler,
    sealed,
)
from forebay.commitlog.inspection import OnProgress, active_entry, require_log
from forebay.commitlog.layout import POINTER, QUARANTINE, SLOTS
from forebay.commitlog.manifest import Entries, Entry, Manifest, ManifestStore
from forebay.commitlog.recovery import quarantine, read_manifest
from forebay.commitlog.scan import SegmentScan, end_of_data
from forebay.commitlog.state import LogState
from forebay.errors import DamagedRange, LogUnopenable, UnsupportedManifestVersion
from forebay.filesystem import File, Filesystem, Kind, write_fully

logger = logging.getLogger(__name__)

_REPORT_NAME = re.compile(r"salvage-[0-9]+\.json")


@dataclass(slots=True)
class SalvageReport:
    """What salvage found and did, to the byte."""

    manifest_from: str = ""
    """Where the list of segments came from."""
    changed: bool = False
    """False when the log was good and nothing was touched."""
    messages: int = 0
    first_seq: int = 1
    next_seq: int = 1
    damage: list[DamagedRange] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)


def salvage(
    filesystem: Filesystem,
    base: Path,
    *,
    clock: Clock | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> SalvageReport:
    """Mend the log in `base` as far as it can be, and report exactly what could not."""
    try:
        require_log(filesystem, base)
        lock = take_lock(filesystem, base)
        try:
            return _Salvage(filesystem, base, clock or SystemClock(), on_progress).run()
        finally:
            lock.release()
    except OSError as error:
        raise not_accessible(base, error) from error


def reported_damage(filesystem: Filesystem, base: Path) -> list[DamagedRange]:
    """What salvages of the log have found lost, for a caller that keeps an index of it. Empty when there was none."""
    if filesystem.status(base / QUARANTINE).kind is not Kind.DIRECTORY:
        return []
    found = []
    for name in filesystem.list_directory(base / QUARANTINE):
        if _REPORT_NAME.fullmatch(name):
            found += _damage_in(filesystem, base / QUARANTINE / name)
    return found


def _damage_in(filesystem: Filesystem, path: Path) -> list[DamagedRange]:
    file = filesystem.open(path)
    try:
        document = json.loads(file.read_at(file.size(), 0))
        damage = [DamagedRange(**fields) for fields in document["damage"]]
        # Where nothing behind the damage says how far it reached, the numbers that were given out do.
        last_seq = document["next_seq"] - 1
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s: no report of a salvage: %r", path, error, extra={"action": "log_report_unreadable"})
        return []
    finally:
        file.close()
    return [replace(each, last_seq=last_seq) if each.last_seq is None else each for each in damage]


class _Salvage:
    def __init__(self, filesystem: Filesystem, base: Path, clock: Clock, on_progress: OnProgress) -> None:
        self._filesystem = filesystem
        self._base = base
        self._clock = clock
        self._on_progress = on_progress
        self._store = ManifestStore(filesystem, base)
        self._report = SalvageReport()
        self._generation = 0
        self._file_seq = 0

    def run(self) -> SalvageReport:
        report = self._report
        listed, next_seq = self._choose()
        total = sum(entry.size for entry in listed)
        done = 0
        kept: list[Entry] = []
        for index, entry in enumerate(listed):
            following = listed[index + 1].start_seq if index + 1 < len(listed) else None
            mended = self._mend(entry, following, next_seq)
            if mended is not None:
                kept.append(mended)
                next_seq = max(next_seq, mended.end_seq + 1)
            done += entry.size
            self._on_progress(done, total)
        report.first_seq = kept[0].start_seq if kept else next_seq
        report.next_seq = next_seq
        if report.changed:
            self._put_in_force(kept, next_seq)
        return report

    def _choose(self) -> tuple[list[Entry], int]:
        """The segments that make up the log, as well as anything still tells, and the lowest possible next seq."""
        slots = self._good_slots()
        self._generation = max((manifest.generation for manifest in slots.values()), default=0)
        self._file_seq = max((manifest.file_seq for manifest in slots.values()), default=0)
        floor = max((manifest.next_seq for manifest in slots.values()), default=1)
        try:
            in_force = read_manifest(self._filesystem, self._base, self._store)
        except LogUnopenable as error:
            if isinstance(error, UnsupportedManifestVersion):
                raise  # a newer Forebay wrote it: mending it with older eyes would break it
            in_force = None
            self._report.changed = True
        if in_force is not None:
            self._report.manifest_from = "the manifest in force"
            return self._listed(in_force), floor
        if slots:
            slot, manifest = max(slots.items(), key=lambda item: item[1].generation)
            self._report.manifest_from = f"the other slot, {SLOTS[slot]}"
            return self._listed(manifest), floor
        found = [self._entry_on_disk(path) for path in layout.segments(self._filesystem, self._base)]
        found = [entry for entry in found if entry.size]
        self._report.manifest_from = f"the names of {len(found)} segments"
        return found, floor

    def _good_slots(self) -> dict[int, Manifest]:
        slots = {}
        for slot in SLOTS:
            try:
                manifest = self._store.read_slot(slot)
            except UnsupportedManifestVersion:
                raise
            except LogUnopenable:
                continue
            if manifest is not None:
                slots[slot] = manifest
        return slots

    def _listed(self, manifest: Manifest) -> list[Entry]:
        """The manifest's segments, the active one as long as it is on disk, and newer ones that it does not know."""
        active = active_entry(manifest)
        on_disk = self._filesystem.status(self._base / active.path).size
        if on_disk > active.size:
            # Written since the manifest: how far its messages go is for the scan to find.
            active = active._replace(size=on_disk, end_seq=active.start_seq - 1)
        entries = [*manifest.entries, active]
        known = {entry.path for entry in entries}
        newer = [
            self._entry_on_disk(path)
            for path in layout.segments(self._filesystem, self._base)
            if path not in known and layout.first_seq_of(path) > active.start_seq
        ]
        adopted = [entry for entry in newer if entry.size]
        self._report.changed |= bool(adopted)
        return entries + adopted

    def _entry_on_disk(self, path: str) -> Entry:
        first_seq = layout.first_seq_of(path)
        return Entry(first_seq, first_seq - 1, self._filesystem.status(self._base / path).size, path)

    def _mend(self, entry: Entry, following_seq: int | None, floor: int) -> Entry | None:
        """Scan one segment, set aside what is unreadable, and return what is left of it."""
        last_seq = entry.end_seq if entry.end_seq >= entry.start_seq else None
        if last_seq is None and following_seq is not None:
            last_seq = following_seq - 1
        status = self._filesystem.status(self._base / entry.path)
        if status.kind is not Kind.FILE:
            fault = "the file is missing" if status.kind is Kind.ABSENT else f"is a {status.kind.value}"
            self._lost(DamagedRange(entry.path, 0, entry.size, entry.start_seq, entry.end_seq, fault))
            return None
        end = min(entry.size, status.size)
        file = self._filesystem.open(self._base / entry.path, write=True)
        try:
            scan = SegmentScan(file, entry.path, position=0, end=end, next_seq=entry.start_seq, last_seq=last_seq)
            data_end = end_of_data(file, 0, end)
            for found in scan:
                if isinstance(found, DamagedRange):
                    self._set_aside(file, found, is_tail=found.position + found.size >= data_end)
                elif following_seq is not None and found.header.first_seq >= following_seq:
                    # Bytes of a failed sync: the next segment holds what was acknowledged under these numbers.
                    end = found.header.position
                    break
                else:
                    self._report.messages += found.header.message_count
            next_seq = min(scan.next_seq, following_seq) if following_seq else scan.next_seq
            self._note_shortened(entry, next_seq, status.size, floor if following_seq is None else following_seq)
        finally:
            file.close()
        if next_seq == entry.start_seq:
            return None
        return Entry(entry.start_seq, next_seq - 1, min(scan.position, end), entry.path)

    def _set_aside(self, file: File, damage: DamagedRange, *, is_tail: bool) -> None:
        """Keep unreadable bytes, then bridge or cut the place where they stood."""
        size = min(damage.size, file.size() - damage.position)
        if damage.is_stray and size < HEADER_BYTES + CRC_BYTES:
            return  # too few to bridge, and readers step over them: nothing is lost with them
        name = quarantine(self._filesystem, self._base, file, damage.segment, damage.position, size, "unreadable")
        self._report.quarantined.append(name)
        self._lost(damage)
        if is_tail:
            file.truncate(damage.position)
        elif damage.last_seq is not None and size >= HEADER_BYTES + CRC_BYTES:
            unreadable, following = file.read_at(size, damage.position), damage.position + size
            is_placed = bool(int.from_bytes(file.read_at(8, following), "little") & CRC_COVERS_PLACE)
            filler = encode_filler(damage.first_seq, damage.last_seq, unreadable, is_placed=is_placed)
            place = checksum_of_place(checksum_of_path(damage.segment), damage.position) if is_placed else NO_PLACE
            write_fully(file, sealed(filler, place), damage.position)
        file.sync()

    def _note_shortened(self, entry: Entry, next_seq: int, size_on_disk: int, expected_next: int) -> None:
        """A file that ends on a whole record, but earlier than the manifest says, has no damaged bytes to show."""
        damage = self._report.damage
        is_known = bool(damage) and damage[-1].segment == entry.path and damage[-1].last_seq is None
        is_known |= bool(damage) and damage[-1].segment == entry.path and (damage[-1].last_seq or 0) >= next_seq
        last_seq = max(entry.end_seq, expected_next - 1)
        if next_seq <= last_seq and size_on_disk < entry.size and not is_known:
            fault = f"the file ends at {size_on_disk} of {entry.size} bytes"
            missing = entry.size - size_on_disk
            self._lost(DamagedRange(entry.path, size_on_disk, missing, next_seq, last_seq, fault))

    def _lost(self, damage: DamagedRange) -> None:
        self._report.damage.append(damage)
        self._report.changed = True

    def _put_in_force(self, kept: list[Entry], next_seq: int) -> None:
        """Keep the old manifest files and the report, and make a new manifest with an empty active segment."""
        for name in (POINTER, *SLOTS.values()):
            self._keep_manifest(name)
        day = layout.day_of(self._clock.now_us())
        if kept:
            day = max(day, layout.day_of_path(kept[-1].path))
        path = layout.segment_path(day, next_seq)
        layout.ensure_directory(self._filesystem, self._base, day)
        self._filesystem.open(self._base / path, write=True, create=True).close()
        self._filesystem.sync_directory((self._base / path).parent)
        entries = Entries()
        for entry in kept:
            entries = entries.with_entry(entry)
        state = LogState(entries, path, position=0, next_seq=next_seq, file_seq=self._file_seq + 1)
        self._write_report()
        self._store.write(state.manifest(self._generation + 1))
        logger.warning("%s: salvaged from %s", self._base, self._report.manifest_from, extra={"action": "log_salvaged"})

    def _keep_manifest(self, name: str) -> None:
        if self._filesystem.status(self._base / name).kind is not Kind.FILE:
            return
        file = self._filesystem.open(self._base / name)
        try:
            kept = quarantine(self._filesystem, self._base, file, name, 0, file.size(), self._stamp())
        finally:
            file.close()
        self._report.quarantined.append(kept)

    def _write_report(self) -> None:
        layout.ensure_directory(self._filesystem, self._base, QUARANTINE)
        path = self._base / QUARANTINE / f"salvage-{self._stamp()}.json"
        file = self._filesystem.open(path, write=True, create=True)
        try:
            write_fully(file, [json.dumps(asdict(self._report), indent=2).encode()], 0)
            file.sync()
        finally:
            file.close()
        self._report.quarantined.append(f"{QUARANTINE}/{path.name}")

    def _stamp(self) -> str:
        return str(self._clock.now_us())
