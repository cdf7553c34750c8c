"""The stream of blocks of one queue, and how it becomes durable: chunks, then meta, then the removal of chunks.

Not thread-safe but for `make_durable`, which may run beside the rest: its queue has the locks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from forebay.clock import Clock
from forebay.errors import SendQueueWriteFailed
from forebay.filesystem import File, Filesystem, Kind, is_disk_full
from forebay.sendqueue.disk.chunks import Chunks
from forebay.sendqueue.disk.meta import Meta, Range, write_meta
from forebay.sendqueue.disk.quarantine import Quarantine
from forebay.sendqueue.disk.reading import Damage, Trust
from forebay.sendqueue.disk.recovery import Progress, Recovered, recover

_log = logging.getLogger("forebay.sendqueue")


class Stream:
    """Blocks in chunk files. `end` is where the next one is written."""

    def __init__(self, filesystem: Filesystem, directory: Path, clock: Clock, chunk_bytes: int) -> None:
        self.directory = directory
        self.counts: Counter[str] = Counter()
        """meta_sync, meta_sync_skip, chunk_rotations, sync_failures, damaged."""
        self.chunks = Chunks(filesystem, directory, chunk_bytes)
        self.end = 0
        self.trust = Trust()
        self._filesystem = filesystem
        self._quarantine = Quarantine(filesystem, directory, clock)
        self._durable = 0
        self._needs_rewrite = False
        self._last_meta: Meta | None = None
        self._is_being_made_again = False

    def recover(self, on_progress: Progress | None) -> Recovered:
        """What an earlier process left here; the log tells what is out of the ordinary."""
        found = recover(self._filesystem, self.directory, self.chunks, self._quarantine, on_progress)
        for note in found.notes:
            _log.warning("%s: %s", self.directory, note, extra={"action": "sendqueue_recovered"})
        self.end = found.writer
        self.trust = Trust(found.trust.plain_until, min(found.trust.snappy_until, found.writer))
        self._durable = max(found.durable, self.chunks.first)
        self.chunks.doubt(self._durable)
        return found

    def append(self, blocks: bytes) -> None:
        """Write at the end. Raises SendQueueWriteFailed, and nothing counts as written then."""
        before = len(self.chunks.starts)
        try:
            self.chunks.append([blocks], self.end)
        except OSError as error:
            raise self._failed(error) from error
        self.counts["chunk_rotations"] += before > 0 and len(self.chunks.starts) > before
        self.end += len(blocks)

    def _failed(self, error: OSError) -> SendQueueWriteFailed:
        return SendQueueWriteFailed(self.directory, error, is_disk_full=is_disk_full(error))

    def tell_damage(self, damage: Damage) -> None:
        """Keep what cannot be read aside, and say what is lost."""
        kept = self._quarantine.keep_bytes(self.chunks, damage.start, damage.end)
        self.counts["damaged"] += 1
        _log.error(
            "%s: %s lost, bytes %d-%d: %s; kept as %s",
            self.directory,
            "one batch is" if damage.is_one else "one batch or more are",
            damage.start,
            damage.end,
            damage.reason,
            kept,
            extra={"action": "sendqueue_block_damaged"},
        )

    def is_removed(self) -> bool:
        """Whether another program has removed the directory, or the chunk that is written to."""
        if self._is_being_made_again:
            return True
        return self._filesystem.status(self.directory).kind is Kind.ABSENT or self.chunks.is_last_gone()

    def make_again(self, lock: Callable[[], None]) -> None:
        """Make the directory again, with all that is open of it. `lock` locks it. Raises SendQueueWriteFailed; may be
        called again then."""
        self._is_being_made_again = True
        try:
            for folder in (self.directory.parent, self.directory):
                self._filesystem.make_directory(folder)
            self._filesystem.sync_directory(self.directory.parent)
            lock()
            lost = self.chunks.write_again()
        except OSError as error:
            raise self._failed(error) from error
        self._is_being_made_again = False
        self._last_meta = None
        self.counts["made_again"] += 1
        what = f"what was in {len(lost)} chunks is lost" if lost else "nothing is lost"
        message = "%s: was removed while it was in use, and is made again; %s"
        _log.error(message, self.directory, what, extra={"action": "sendqueue_directory_lost"})

    def has_news(self, meta: Meta) -> bool:
        """Whether making this meta durable changes anything."""
        return meta != self._last_meta or self._needs_rewrite

    def make_durable(self, files: dict[int, File], *, is_name_new: bool) -> bool:
        """Sync the files that `Chunks.unsynced` gave. False if the disk did not confirm: see `rewrite`."""
        if self._needs_rewrite:
            return False
        try:
            self.chunks.sync_files(files, is_name_new=is_name_new)
        except OSError as error:
            message = "%s: the disk did not confirm what was written (%s); it is written again"
            _log.error(message, self.directory, error, extra={"action": "sendqueue_sync_failed"})
            self.counts["sync_failures"] += 1
            # The kernel may have dropped the pages and would say that all is well next time: never ask it again.
            self._needs_rewrite = True
            return False
        return True

    def rewrite(self) -> None:
        """Write everything since the last meta to a chunk of its own. Raises SendQueueWriteFailed."""
        try:
            self.chunks.rewrite_from(self._durable, self.end)
        except OSError as error:
            raise self._failed(error) from error
        self._needs_rewrite = False

    def write_meta(self, meta: Meta) -> None:
        """Raises SendQueueWriteFailed; the meta file before this one counts then."""
        try:
            write_meta(self._filesystem, self.directory, meta)
        except OSError as error:
            self.counts["sync_failures"] += 1
            raise self._failed(error) from error
        self.counts["meta_sync"] += 1
        self._last_meta, self._durable = meta, meta.writer_offset

    def remove_consumed(self, needed: Sequence[Range]) -> None:
        """Remove chunks that neither the last meta nor the queue (`needed`) has any use for."""
        meta = self._last_meta
        if meta is None:
            return
        free = []
        for start in self.chunks.starts:
            end = self.chunks.end_of(start)
            is_used = any(low < end and high > start for low, high in needed)
            if end <= meta.writer_offset and not is_used and _is_free(start, end, meta):
                free.append(start)
        try:
            self.chunks.remove(free)
        except OSError as error:
            message = "%s: consumed chunks stay: %s"
            _log.warning(message, self.directory, error, extra={"action": "sendqueue_chunk_stays"})


def _is_free(start: int, end: int, meta: Meta) -> bool:
    """Whether this meta file needs nothing of the range."""
    return end <= meta.reader_offset or any(low <= start and end <= high for low, high in meta.confirmed)


def joined(ranges: Sequence[Range]) -> list[Range]:
    """In order, neighbours made one."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def between(needed: Sequence[Range], end: int) -> tuple[Range, ...]:
    """The gaps between joined ranges, and behind the last one up to `end`."""
    starts = [*(start for start, _ in needed[1:]), end]
    gaps = [(stop, start) for (_, stop), start in zip(needed, starts, strict=True)] if needed else []
    return tuple((low, high) for low, high in gaps if low < high)
