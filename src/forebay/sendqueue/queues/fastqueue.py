"""FastQueue: batches in memory for a moment, then in chunk files. The files are described in `forebay.sendqueue.disk`.

The line is, from its head: batches that were released; batches that are on disk only; batches in memory (the channel).
A push goes to the channel. When that holds `inmemory_blocks` batches, the oldest ones are written, as many as fill the
write buffer, and leave memory: a push that finds the channel full costs one write of 256 KiB at most, and the next ones
none. `sync` writes the rest of the channel, so that no batch is in memory alone for longer than `meta_sync_interval`;
batches that it wrote can still be claimed from memory. What is confirmed before it was written never touches the disk.

The lock is held for one write buffer at a time and never while the disk syncs, so pushes and claims go on meanwhile.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from forebay.clock import Clock
from forebay.errors import BatchTooLarge, SendQueueFull, SendQueueLocked
from forebay.filesystem import AlreadyLocked, Filesystem
from forebay.sendqueue.disk.blocks import BlockDamaged, packed
from forebay.sendqueue.disk.chunks import Chunks
from forebay.sendqueue.disk.meta import Meta, Range
from forebay.sendqueue.disk.reading import Block, Damage, block_at, damage_at, walk
from forebay.sendqueue.disk.recovery import Progress, covered
from forebay.sendqueue.disk.stream import Stream, between, joined
from forebay.sendqueue.entry import NOT_ON_DISK, Entry, Released
from forebay.sendqueue.queue import RELEASED_MAX, Codec, Figures, Limits, Recount

Batch = TypeVar("Batch")

CONFIRMED = -2
"""In place of a position: confirmed before it was written."""
LOCK_FILE = "lock"


@dataclass(frozen=True, slots=True)
class FastQueueOptions:
    """How a FastQueue uses memory and disk."""

    inmemory_blocks: int = 2048
    chunk_bytes: int = 512 << 20
    write_buffer_bytes: int = 256 << 10
    compress: bool = True


class FastQueue(Generic[Batch]):
    """A `SendQueue` on disk. Opening it locks and reads its directory; raises SendQueueLocked, or OSError."""

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        codec: Codec[Batch],
        clock: Clock,
        filesystem: Filesystem,
        *,
        options: FastQueueOptions | None = None,
        owner: str = "",
        on_progress: Progress | None = None,
    ) -> None:
        self.directory = directory
        self.limits = limits
        self._codec = codec
        self._clock = clock
        self._filesystem = filesystem
        self._owner = owner
        self._options = options or FastQueueOptions()
        self._lock = Lock()
        self._sync_lock = Lock()
        filesystem.make_directory(directory)
        filesystem.sync_directory(directory.parent)
        try:
            self._directory_lock = filesystem.lock(directory / LOCK_FILE, owner)
        except AlreadyLocked as locked:
            raise SendQueueLocked(directory, locked.owner) from None
        try:
            self._stream = Stream(filesystem, directory, clock, self._options.chunk_bytes)
            self._open(on_progress)
        except BaseException:
            self._directory_lock.release()
            raise

    @property
    def counts(self) -> Counter[str]:
        """Since opening: inmemory_flushes, and what `Stream` counts."""
        return self._stream.counts

    def _open(self, on_progress: Progress | None) -> None:
        found = self._stream.recover(on_progress)
        self._number = found.batches
        self._disk_number = 1
        """The place in line of the next batch that is read from disk."""
        self._disk_oldest: tuple[int, int] | None = None
        self._channel: deque[Entry[Batch]] = deque()
        self._unwritten: deque[Entry[Batch]] = deque()
        self._claimed: dict[int, Entry[Batch]] = {}
        self._released: Released[Batch] = Released()
        self._held_batches = self._held_bytes = 0
        """In memory: in the channel, claimed, or released."""
        self._unwritten_batches = self._unwritten_bytes = 0
        self._read = found.reader if found.batches else found.writer
        self._spilled_end = found.writer
        self._disk_batches, self._disk_bytes = found.batches, found.bytes
        """On disk only."""
        self._lost_batches = 0
        """Counted as being on disk and not found there, less those that were found and not counted."""
        self._confirmed = found.confirmed
        self._is_closed = False

    # in

    def push(self, batch: Batch) -> None:
        size = self._codec.size_of(batch)
        with self._lock:
            self._check_room(size)
            if len(self._channel) >= self._options.inmemory_blocks:
                self._spill_some()
            self._add(batch, size)

    def keep(self, batches: Iterable[Batch]) -> None:
        """Put batches at the end of the line whatever the limits say: they were accepted elsewhere."""
        with self._lock:
            for batch in batches:
                self._add(batch, self._codec.size_of(batch))

    def _add(self, batch: Batch, size: int) -> None:
        self._number += 1
        entry = Entry(self._number, batch, size, self._codec.accepted_us(batch))
        self._channel.append(entry)
        self._unwritten.append(entry)
        self._held_batches += 1
        self._held_bytes += size
        self._unwritten_batches += 1
        self._unwritten_bytes += size

    def _check_room(self, size: int) -> None:
        batches, in_bytes = self._held_batches + self._disk_batches, self._held_bytes + self._disk_bytes
        limits = self.limits
        if batches < limits.batches_max and in_bytes + size <= limits.bytes_max:
            return
        if size > limits.bytes_max:
            raise BatchTooLarge(size, limits.bytes_max)
        raise SendQueueFull(batches, limits.batches_max, in_bytes, limits.bytes_max)

    # out

    def claim(self) -> Entry[Batch] | None:
        with self._lock:
            entry = self._next()
            if entry is not None:
                self._claimed[entry.number] = entry
            return entry

    def _next(self) -> Entry[Batch] | None:
        released = self._released
        if released:
            entry = released.take(self._clock.monotonic())
            if entry is not None or len(released) >= RELEASED_MAX:
                return entry
        if self._read < self._spilled_end:
            entry = self._from_disk()
            if entry is not None:
                return entry
        return self._channel.popleft() if self._channel else None

    def _from_disk(self) -> Entry[Batch] | None:
        while self._read < self._spilled_end:
            behind = covered(self._confirmed, self._read)
            if behind is not None:
                self._read = behind
                continue
            try:
                block = block_at(self._stream.chunks, self._read, self._stream.trust)
                batch = self._codec.decode(block.data)
            except BlockDamaged as damaged:
                self._pass_damage(self._damage(str(damaged)))
                continue
            except ValueError as undecodable:
                self._pass_damage(Damage(block.start, block.end, f"no batch of ours: {undecodable}", is_one=True))
                continue
            self._read = block.end
            return self._taken(block.start, block.end, batch, len(block.data))
        self._note_disk_batches(0, taken=0)
        self._disk_bytes = 0
        return None

    def _note_disk_batches(self, left: int, *, taken: int) -> None:
        self._lost_batches += self._disk_batches - left - taken
        self._disk_batches = left

    def _taken(self, start: int, end: int, batch: Batch, size: int) -> Entry[Batch]:
        entry = Entry(self._disk_number, batch, size, self._codec.accepted_us(batch))
        entry.start, entry.end = start, end
        self._disk_number += 1
        is_last = self._read >= self._spilled_end
        self._note_disk_batches(0 if is_last else max(self._disk_batches - 1, 0), taken=1)
        self._disk_bytes = 0 if is_last else max(self._disk_bytes - size, 0)
        self._held_batches += 1
        self._held_bytes += size
        return entry

    def _damage(self, reason: str) -> Damage:
        return damage_at(self._stream.chunks, self._read, self._spilled_end, self._stream.trust, reason)

    def _pass_damage(self, damage: Damage) -> None:
        self._stream.tell_damage(damage)
        self._disk_number += 1
        self._note_disk_batches(max(self._disk_batches - 1, 0), taken=0)
        self._read = damage.end

    def confirm(self, entry: Entry[Batch]) -> None:
        with self._lock:
            if self._claimed.pop(entry.number, None) is not None:
                self._forget(entry)

    def _forget(self, entry: Entry[Batch]) -> None:
        self._held_batches -= 1
        self._held_bytes -= entry.size
        if entry.start == NOT_ON_DISK:
            self._unwritten_batches -= 1
            self._unwritten_bytes -= entry.size
        entry.start = CONFIRMED

    def release(self, entry: Entry[Batch], delay_seconds: float = 0.0) -> None:
        with self._lock:
            if self._claimed.pop(entry.number, None) is not None:
                self._released.add(entry, self._clock.monotonic() + delay_seconds)

    def hasten(self) -> None:
        with self._lock:
            self._released.hasten()

    def due_in(self) -> float | None:
        with self._lock:
            return self._released.due_in(self._clock.monotonic())

    def drop_oldest(self) -> Entry[Batch] | None:
        with self._lock:
            entry = self._released.take_oldest()
            if entry is None and self._read < self._spilled_end:
                entry = self._from_disk()
            if entry is None and self._channel:
                entry = self._channel.popleft()
            if entry is not None:
                self._forget(entry)
            return entry

    # to disk

    def _spill_some(self) -> None:
        """Let go of the channel's oldest batches, which are written first if they are not yet. With the lock held."""
        while self._channel[0].start == NOT_ON_DISK:
            self._write_some()
        self.counts["inmemory_flushes"] += 1
        while self._channel and self._channel[0].start >= 0:
            entry = self._channel.popleft()
            if self._read >= self._spilled_end:
                self._read, self._disk_number = entry.start, entry.number
            self._spilled_end = entry.end
            self._held_batches -= 1
            self._held_bytes -= entry.size
            self._disk_batches += 1
            self._disk_bytes += entry.size

    def _write_some(self) -> None:
        """Write one buffer of batches, the oldest first. With the lock held. Raises SendQueueWriteFailed."""
        pieces: list[bytes] = []
        entries: list[tuple[Entry[Batch], int, int]] = []
        offset = self._stream.end
        for entry in self._unwritten:
            if entry.start == CONFIRMED:
                continue
            data = self._codec.encode(entry.batch)
            block = packed(data, offset, compress=self._options.compress)
            pieces.append(block)
            end = offset + len(block)
            entries.append((entry, end, len(data)))
            offset = end
            if offset - self._stream.end >= self._options.write_buffer_bytes:
                break
        start = self._stream.end
        if pieces:
            self._stream.append(b"".join(pieces))
        self._note_written(entries, start)

    def _note_written(self, entries: list[tuple[Entry[Batch], int, int]], start: int) -> None:
        for entry, end, size in entries:
            entry.start, entry.end = start, end
            self._unwritten_batches -= 1
            self._unwritten_bytes -= entry.size
            self._held_bytes += size - entry.size
            entry.size = size
            start = end
        while self._unwritten and self._unwritten[0].start != NOT_ON_DISK:
            self._unwritten.popleft()

    # durable

    def sync(self) -> None:
        """Write what is in memory, make it durable, then the meta file, then remove chunks that are consumed.

        Raises SendQueueWriteFailed; what was accepted is still in memory or in the chunks, and the next sync goes on.
        """
        with self._sync_lock:
            if self._stream.is_removed():
                with self._lock:
                    self._stream.make_again(self._lock_again)
            while self._has_unwritten():
                with self._lock:
                    self._write_some()
            with self._lock:
                meta = self._meta()
                files, is_name_new = self._stream.chunks.unsynced()
            if not files and not self._stream.has_news(meta):
                self.counts["meta_sync_skip"] += 1
                return
            is_durable = self._stream.make_durable(files, is_name_new=is_name_new)
            with self._lock:
                self._stream.chunks.synced(files)
                if not is_durable:
                    self._stream.rewrite()
            self._stream.write_meta(meta)
            with self._lock:
                self._stream.remove_consumed(self._needed())

    def _lock_again(self) -> None:
        """The lock of a file that was removed keeps no process out."""
        self._directory_lock.release()
        try:
            self._directory_lock = self._filesystem.lock(self.directory / LOCK_FILE, self._owner)
        except AlreadyLocked as locked:
            raise OSError(errno.EBUSY, f"it was removed, and is in use by {locked.owner} now") from None

    def _has_unwritten(self) -> bool:
        with self._lock:
            return self._unwritten_batches > 0

    def _meta(self) -> Meta:
        """What a meta file has to say of this moment. With the lock held."""
        needed = self._needed()
        end = self._stream.end
        batches = self._held_batches + self._disk_batches - self._unwritten_batches
        in_bytes = self._held_bytes + self._disk_bytes - self._unwritten_bytes
        return Meta(
            needed[0][0] if needed else end, end, batches, in_bytes, between(needed, end), max(self._stream.trust)
        )

    def _needed(self) -> list[Range]:
        """The ranges on disk that hold unconfirmed batches, in order, neighbours joined."""
        out = [*self._claimed.values(), *self._released.entries()]
        ranges = [(entry.start, entry.end) for entry in out if entry.start >= 0]
        ranges += self._unread_ranges()
        if self._channel and self._channel[0].start >= 0:
            ranges.append((self._channel[0].start, self._stream.end))
        return joined(ranges)

    def _unread_ranges(self) -> list[Range]:
        """What is on disk only, without what an earlier process had confirmed already."""
        ranges: list[Range] = []
        place = self._read
        for start, end in self._confirmed:
            if start > place:
                ranges.append((place, min(start, self._spilled_end)))
            place = max(place, end)
        if place < self._spilled_end:
            ranges.append((place, self._spilled_end))
        return [(start, end) for start, end in ranges if start < end]

    # the rest

    def figures(self) -> Figures:
        with self._lock:
            return Figures(
                batches=self._held_batches + self._disk_batches,
                bytes=self._held_bytes + self._disk_bytes,
                claimed=len(self._claimed) + len(self._released),
                oldest_us=self._oldest_us(),
                memory_batches=self._held_batches,
                unwritten_batches=self._unwritten_batches,
                memory_bytes=self._held_bytes,
                disk_bytes=self._stream.chunks.disk_bytes,
                lost=self._lost_batches,
            )

    def recount(self) -> Recount:
        with self._lock:
            kept = self._held_batches + self._disk_batches
            in_memory = len(self._channel) + len(self._claimed) + len(self._released)
            ranges, reader, trust = self._unread_ranges(), self._read, self._stream.trust
            chunks = Chunks(self._filesystem, self.directory, self._options.chunk_bytes)
        try:
            found = (block for start, end in ranges for block in walk(chunks, start, end, trust))
            on_disk = sum(isinstance(block, Block) for block in found)
        finally:
            chunks.close()
        with self._lock:
            return Recount(kept, in_memory + on_disk, self._read == reader)

    @property
    def fill_ratio(self) -> float:
        with self._lock:
            batches, in_bytes = self._held_batches + self._disk_batches, self._held_bytes + self._disk_bytes
        return max(batches / self.limits.batches_max, in_bytes / self.limits.bytes_max)

    def _oldest_us(self) -> int | None:
        times = [entry.accepted_us for entry in [*self._claimed.values(), *self._released.entries()]]
        if self._read < self._spilled_end:
            times.append(self._first_on_disk_us())
        elif self._channel:
            times.append(self._channel[0].accepted_us)
        return min((time for time in times if time), default=None)

    def _first_on_disk_us(self) -> int:
        """When the next batch on disk was accepted; 0 if that cannot be read now. Read once for each batch."""
        if self._disk_oldest is None or self._disk_oldest[0] != self._read:
            try:
                batch = self._codec.decode(block_at(self._stream.chunks, self._read, self._stream.trust).data)
                self._disk_oldest = (self._read, self._codec.accepted_us(batch))
            except (BlockDamaged, ValueError, OSError):
                self._disk_oldest = (self._read, 0)
        return self._disk_oldest[1]

    def is_empty(self) -> bool:
        """Whether everything is confirmed."""
        return self._held_batches + self._disk_batches == 0

    def close(self) -> None:
        """Make everything durable and unlock the directory. If the disk refuses, it is unlocked all the same."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.sync()
        finally:
            with self._lock:
                self._stream.chunks.close()
            self._directory_lock.release()
