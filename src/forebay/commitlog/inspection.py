"""Looking at a log without changing it: what it is made of (`inspect`), and whether every byte is good (`verify`).

Neither takes the log's lock, so both work on a log that a server has open: they see what its last manifest tells and
what stands behind it now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from forebay.commitlog import layout
from forebay.commitlog.access import lock_owner
from forebay.commitlog.columns import BodyRefused
from forebay.commitlog.layout import POINTER, QUARANTINE, SLOTS
from forebay.commitlog.manifest import Entry, Manifest, ManifestStore
from forebay.commitlog.recovery import read_manifest
from forebay.commitlog.scan import Record, SegmentScan, end_of_data
from forebay.errors import DamagedRange, LogUnopenable, ManifestNotFound
from forebay.filesystem import File, Filesystem, Kind

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


@dataclass(frozen=True, slots=True)
class SlotView:
    name: str
    is_in_force: bool
    manifest: Manifest | None
    fault: str | None
    """Why the slot cannot be used; None when it can, or is absent."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    entry: Entry
    is_active: bool
    size_on_disk: int | None
    """None when the file is missing."""


@dataclass(frozen=True, slots=True)
class Inspection:
    base: Path
    owner: str | None
    """The process that has the log open, if one has."""
    slots: tuple[SlotView, ...]
    fault: str | None
    """Why the log cannot be opened, as far as its manifest says."""
    next_seq: int | None
    segments: tuple[SegmentView, ...]
    unlisted: tuple[tuple[str, int], ...]
    """Segments that the manifest does not list, with their size."""
    quarantined: tuple[tuple[str, int], ...]
    foreign: tuple[str, ...]


def inspect(filesystem: Filesystem, base: Path) -> Inspection:
    require_log(filesystem, base)
    store = ManifestStore(filesystem, base)
    fault: str | None = None
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(filesystem, base, store)
    except LogUnopenable as error:
        fault = str(error)
    views = tuple(_segment_views(filesystem, base, manifest)) if manifest else ()
    listed = {view.entry.path for view in views}
    return Inspection(
        base=base,
        owner=lock_owner(filesystem, base),
        slots=tuple(_slot_view(store, slot, manifest) for slot in SLOTS),
        fault=fault,
        next_seq=manifest.next_seq if manifest else None,
        segments=views,
        unlisted=tuple(
            (path, filesystem.status(base / path).size)
            for path in layout.segments(filesystem, base)
            if path not in listed
        ),
        quarantined=tuple(_quarantined(filesystem, base)),
        foreign=tuple(layout.foreign_names(filesystem, base)),
    )


def require_log(filesystem: Filesystem, base: Path) -> None:
    """Refuse a directory that holds nothing of a commit log, before a user waits for its verification."""
    if filesystem.status(base).kind is Kind.ABSENT:
        raise LogUnopenable(base, "no such directory")
    names = [POINTER, *SLOTS.values()]
    has_manifest = any(filesystem.status(base / name).kind is not Kind.ABSENT for name in names)
    if not has_manifest and not layout.segments(filesystem, base):
        raise LogUnopenable(base, "no commit log is here: neither a manifest nor a segment")


def _slot_view(store: ManifestStore, slot: int, in_force: Manifest | None) -> SlotView:
    try:
        manifest, fault = store.read_slot(slot), None
    except LogUnopenable as error:
        manifest, fault = None, error.message
    is_in_force = in_force is not None and manifest is not None and manifest.generation == in_force.generation
    return SlotView(SLOTS[slot], is_in_force, manifest, fault)


def _segment_views(filesystem: Filesystem, base: Path, manifest: Manifest) -> Iterator[SegmentView]:
    for entry in [*manifest.entries, active_entry(manifest)]:
        status = filesystem.status(base / entry.path)
        size = status.size if status.kind is Kind.FILE else None
        yield SegmentView(entry, entry.path == manifest.path, size)


def active_entry(manifest: Manifest) -> Entry:
    """The active segment as far as the manifest knows it."""
    return Entry(layout.first_seq_of(manifest.path), manifest.next_seq - 1, manifest.write_pos, manifest.path)


def _quarantined(filesystem: Filesystem, base: Path) -> Iterator[tuple[str, int]]:
    if filesystem.status(base / QUARANTINE).kind is Kind.DIRECTORY:
        for name in filesystem.list_directory(base / QUARANTINE):
            yield f"{QUARANTINE}/{name}", filesystem.status(base / QUARANTINE / name).size


@dataclass(slots=True)
class Verification:
    """What a full check found. `damage` is what is wrong; `notes` is what is odd and harmless."""

    segments: int = 0
    records: int = 0
    messages: int = 0
    size: int = 0
    damage: list[DamagedRange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    owner: str | None = None
    """The process that has the log open and may be writing to it, if there is one."""

    @property
    def is_good(self) -> bool:
        return not self.damage


def verify(filesystem: Filesystem, base: Path, on_progress: OnProgress = lambda done, total: None) -> Verification:
    """Check every CRC, every column and every seq range of the log against its manifest, and all that stands behind it.

    A record that is being written while this looks is no damage: behind the manifest the log goes as far as whole
    records go.
    """
    require_log(filesystem, base)
    manifest = read_manifest(filesystem, base, ManifestStore(filesystem, base))
    if manifest is None:
        raise ManifestNotFound(base, POINTER, "there are files of a log")
    views = list(_segment_views(filesystem, base, manifest))
    total = sum(view.entry.size for view in views)
    result = Verification(owner=lock_owner(filesystem, base))
    expected = views[0].entry.start_seq
    for view in views:
        entry = view.entry
        if not view.is_active and _is_removed(filesystem, base, entry):
            result.notes.append(f"{entry.path}: removed by retention meanwhile")
            expected = entry.end_seq + 1
            continue
        if entry.start_seq != expected:
            result.notes.append(f"no segment holds messages {expected}-{entry.start_seq - 1}")
        expected = entry.end_seq + 1
        _verify_segment(filesystem, base, view, result, lambda done: on_progress(result.size + done, total))
        result.segments += 1
    on_progress(total, total)
    return result


def _is_removed(filesystem: Filesystem, base: Path, entry: Entry) -> bool:
    """Whether a segment that is not there was taken off the list since we read it, as a live log may do."""
    if filesystem.status(base / entry.path).kind is not Kind.ABSENT:
        return False
    manifest = ManifestStore(filesystem, base).read()
    return manifest is not None and (*manifest.entries, active_entry(manifest))[0].start_seq > entry.end_seq


def _verify_segment(
    filesystem: Filesystem, base: Path, view: SegmentView, result: Verification, on_bytes: Callable[[int], None]
) -> None:
    entry = view.entry
    if view.size_on_disk is None:
        fault = "the file is missing"
        result.size += entry.size
        result.damage.append(DamagedRange(entry.path, 0, entry.size, entry.start_seq, entry.end_seq, fault))
        return
    file = filesystem.open(base / entry.path)
    try:
        scan = SegmentScan(
            file, entry.path, position=0, end=entry.size, next_seq=entry.start_seq, last_seq=entry.end_seq
        )
        for found in scan:
            _verify_found(found, entry, result)
            on_bytes(scan.position)
        result.size += entry.size
        if scan.position == entry.size and scan.next_seq <= entry.end_seq:
            fault = "the segment ends early"
            result.damage.append(DamagedRange(entry.path, entry.size, 0, scan.next_seq, entry.end_seq, fault))
        if view.is_active:
            _verify_behind_manifest(file, view, result)
        elif behind := end_of_data(file, entry.size, view.size_on_disk) - entry.size:
            result.notes.append(f"{entry.path}: {behind} bytes from {entry.size} on, never acknowledged")
    finally:
        file.close()


def _verify_behind_manifest(file: File, view: SegmentView, result: Verification) -> None:
    """What was written since the last manifest, as the next opening would find it."""
    entry, end = view.entry, max(view.size_on_disk or 0, view.entry.size)
    scan = SegmentScan(file, entry.path, position=entry.size, end=end, next_seq=entry.end_seq + 1)
    torn: DamagedRange | None = None
    for found in scan:
        # What no record follows is distinguished from damage.
        torn = found if isinstance(found, DamagedRange) and found.last_seq is None else None
        if torn is None:
            _verify_found(found, entry, result)
    written = scan.position - entry.size
    result.size += written
    if written:
        result.notes.append(f"{entry.path}: {written} bytes from {entry.size} on, written since the last manifest")
    if torn is not None:
        what = "being written now, or torn by a crash" if result.owner else "torn by a crash, never acknowledged"
        result.notes.append(f"{entry.path}: {torn.size} bytes from {torn.position} on, {what}")


def _verify_found(found: Record | DamagedRange, entry: Entry, result: Verification) -> None:
    if isinstance(found, DamagedRange):
        if found.is_stray:
            result.notes.append(str(found))
        else:
            result.damage.append(found)
        return
    header = found.header
    if header.is_filler:
        lost = f"messages {header.first_seq}-{header.next_seq - 1} were lost before a salvage"
        result.notes.append(f"{entry.path}: {lost}")
        return
    result.records += 1
    try:
        found.batch().validate(full=True)
        result.messages += header.message_count
    except (BodyRefused, ValueError) as refused:
        lost_range = header.first_seq, header.next_seq - 1
        result.damage.append(DamagedRange(entry.path, header.position, header.size, *lost_range, str(refused)))
