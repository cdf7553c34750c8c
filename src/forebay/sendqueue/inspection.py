"""Looking into a FastQueue's directory, checking every block of it, and making it sound again.

A send queue may have further queues in its directory, of the same format: `failover/` and `first/` (`PARTS`). The
functions here look at one queue each; `queues_in` lists those of a directory.

`inspect` and `verify` change nothing and work while a process has the queue open; what that one has in memory they
cannot see. `salvage` deletes nothing: it is what opening the queue does, and it writes a meta file that leaves out
what cannot be read, so that the next opening finds no damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from forebay.clock import Clock
from forebay.errors import PathUnusable, SendQueueLocked
from forebay.filesystem import AlreadyLocked, Filesystem, Kind
from forebay.sendqueue.disk.chunks import Chunks, chunk_name
from forebay.sendqueue.disk.meta import META_FILE, Meta, MetaUnreadable, Range, read_meta, write_meta
from forebay.sendqueue.disk.quarantine import FOLDER, Quarantine
from forebay.sendqueue.disk.reading import Block, Damage, Trust, walk
from forebay.sendqueue.disk.recovery import WITHOUT_META, recover
from forebay.sendqueue.opening import FAILOVER_FOLDER
from forebay.sendqueue.queues.fastqueue import LOCK_FILE
from forebay.sendqueue.queues.hybrid import FIRST_FOLDER

OnProgress = Callable[[int, int], None]
PARTS = (FIRST_FOLDER, FAILOVER_FOLDER)
"""Folders of a send queue that are queues too, in the order in which they are sent, the queue itself between them."""
CHUNK_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class ChunkView:
    name: str
    start: int
    size: int
    is_needed: bool
    """Whether it holds anything behind the reader."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a directory, as its meta file tells it."""

    directory: str
    meta: Meta | None
    meta_fault: str
    chunks: list[ChunkView]
    disk_bytes: int
    quarantined: list[str]
    open_in: str | None

    def document(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)


@dataclass(slots=True)
class Verification:
    """Every block, looked at. `unread` are behind the reader: still to be sent."""

    directory: str
    blocks: int = 0
    unread: int = 0
    unread_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    meta_fault: str = ""

    @property
    def is_good(self) -> bool:
        return not self.damages and not self.meta_fault

    def document(self) -> dict[str, object]:
        """For programs."""
        damages = [damage._asdict() for damage in self.damages]
        return {**asdict(self), "damages": damages, "ok": self.is_good}


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What a salvage found and kept."""

    directory: str
    batches: int
    bytes: int
    lost: list[Damage]
    notes: list[str]

    def document(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "lost": [damage._asdict() for damage in self.lost]}


def inspect(filesystem: Filesystem, directory: Path) -> Inspection:
    """Raises PathUnusable for what is no send queue."""
    chunks = _chunks(filesystem, directory)
    meta, fault = _meta(filesystem, directory)
    reader = meta.reader_offset if meta else 0
    views = [
        ChunkView(chunk_name(start), start, chunks.end_of(start) - start, chunks.end_of(start) > reader)
        for start in chunks.starts
    ]
    folder = directory / FOLDER
    quarantined = filesystem.list_directory(folder) if filesystem.status(folder).kind is Kind.DIRECTORY else []
    lock = directory / LOCK_FILE
    owner = filesystem.lock_owner(lock) if filesystem.status(lock).kind is Kind.FILE else None
    return Inspection(str(directory), meta, fault, views, chunks.disk_bytes, quarantined, owner)


def queues_in(filesystem: Filesystem, directory: Path) -> list[Path]:
    """The queues of a send queue's directory: itself, `first/`, `failover/`, those that are there. Raises PathUnusable
    if none is."""
    _check_directory(filesystem, directory)
    found = [one for one in (directory, *(directory / part for part in PARTS)) if _holds_queue(filesystem, one)]
    if not found:
        raise _no_queue(directory)
    return found


def _check_directory(filesystem: Filesystem, directory: Path) -> None:
    if filesystem.status(directory).kind is not Kind.DIRECTORY:
        raise PathUnusable(f"{directory}: there is no such directory")


def _holds_queue(filesystem: Filesystem, directory: Path) -> bool:
    if filesystem.status(directory).kind is not Kind.DIRECTORY:
        return False
    names = filesystem.list_directory(directory)
    if LOCK_FILE in names or any(name.startswith(META_FILE) for name in names):
        return True
    return bool(Chunks(filesystem, directory, CHUNK_BYTES).starts)


def _no_queue(directory: Path) -> PathUnusable:
    return PathUnusable(f"{directory}: holds no send queue", remedy="Name a directory with fastqueue.meta in it")


def _chunks(filesystem: Filesystem, directory: Path) -> Chunks:
    _check_directory(filesystem, directory)
    if not _holds_queue(filesystem, directory):
        raise _no_queue(directory)
    return Chunks(filesystem, directory, CHUNK_BYTES)


def _meta(filesystem: Filesystem, directory: Path) -> tuple[Meta | None, str]:
    try:
        meta = read_meta(filesystem, directory)
    except MetaUnreadable as unreadable:
        return None, f"it cannot be read: {unreadable}"
    return meta, "" if meta else "it is missing"


def _trust(meta: Meta | None) -> Trust:
    return Trust(meta.checked_from, 0) if meta else WITHOUT_META


def verify(filesystem: Filesystem, directory: Path, on_progress: OnProgress | None = None) -> Verification:
    """Read every block that is there. Raises PathUnusable for what is no send queue."""
    chunks = _chunks(filesystem, directory)
    meta, fault = _meta(filesystem, directory)
    reader = meta.reader_offset if meta else 0
    confirmed = meta.confirmed if meta else ()
    found = Verification(str(directory), meta_fault=fault if chunks.starts else "")
    start, end = chunks.first, chunks.end
    for block in walk(chunks, start, end, _trust(meta)):
        if isinstance(block, Block):
            found.blocks += 1
            if block.start >= reader and not any(low <= block.start < high for low, high in confirmed):
                found.unread += 1
                found.unread_bytes += len(block.data)
        elif not _is_expected(block, reader, confirmed):
            found.damages.append(block)
        if on_progress is not None:
            on_progress(block.end - start, end - start)
    return found


def _is_expected(damage: Damage, reader: int, confirmed: tuple[Range, ...]) -> bool:
    """Chunks that were consumed are gone, and nothing is lost with them."""
    return damage.end <= reader or any(low <= damage.start and damage.end <= high for low, high in confirmed)


def salvage(filesystem: Filesystem, directory: Path, clock: Clock, on_progress: OnProgress | None = None) -> Salvaged:
    """Raises PathUnusable for what is no send queue, and SendQueueLocked while it is open."""
    chunks = _chunks(filesystem, directory)
    try:
        lock = filesystem.lock(directory / LOCK_FILE, "forebay sendqueue salvage")
    except AlreadyLocked as locked:
        raise SendQueueLocked(directory, locked.owner) from None
    try:
        quarantine = Quarantine(filesystem, directory, clock)
        found = recover(filesystem, directory, chunks, quarantine, on_progress)
        batches = in_bytes = 0
        confirmed, lost = list(found.confirmed), []
        for block in walk(chunks, found.reader, found.writer, found.trust):
            if any(low <= block.start < high for low, high in found.confirmed):
                continue
            if isinstance(block, Block):
                batches += 1
                in_bytes += len(block.data)
            else:
                quarantine.keep_bytes(chunks, block.start, block.end)
                lost.append(block)
                confirmed.append((block.start, block.end))
        # Without a meta file, Snappy blocks of the originals were believed without a CRC: next time they must be too.
        checked_from = max(found.trust.plain_until, min(found.trust.snappy_until, found.writer))
        meta = Meta(found.reader, found.writer, batches, in_bytes, _merged(confirmed), checked_from)
        write_meta(filesystem, directory, meta)
        return Salvaged(str(directory), batches, in_bytes, lost, found.notes)
    finally:
        chunks.close()
        lock.release()


def _merged(ranges: list[Range]) -> tuple[Range, ...]:
    from forebay.sendqueue.disk.stream import joined

    return tuple(joined(ranges))
