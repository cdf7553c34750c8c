"""Opening a queue's directory: which bytes count, how many batches that is, and what has to be reported.

| found | done |
|---|---|
| nothing | a new queue |
| meta version 2 | trusted; only what was written behind its `writer_offset` is read |
| meta version 1 | the same, and the blocks before it are read to count them |
| no meta, or one that cannot be read, and chunks | every chunk is read; the meta file is moved to `quarantine/` |
| a torn end | copied to `quarantine/`, then cut off |
| chunks that meta does not know | adopted |
| a chunk missing | logged; its batches are lost |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forebay.filesystem import Filesystem
from forebay.sendqueue.disk.chunks import Chunks
from forebay.sendqueue.disk.meta import META_FILE, Meta, MetaUnreadable, Range, read_meta
from forebay.sendqueue.disk.quarantine import Quarantine
from forebay.sendqueue.disk.reading import Block, Damage, Trust, walk

_log = logging.getLogger("forebay.sendqueue")

EVERYWHERE = 1 << 63
ALL_CHECKED = Trust()
WITHOUT_META = Trust(0, EVERYWHERE)

Progress = Callable[[int, int], None]
"""Called with bytes read and bytes to read, while a scan goes on."""


@dataclass(slots=True)
class Recovered:
    """What a directory holds."""

    reader: int = 0
    writer: int = 0
    batches: int = 0
    bytes: int = 0
    confirmed: tuple[Range, ...] = ()
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is out of the ordinary, for the log."""
    durable: int = 0
    """Up to here a meta file vouches for the data."""
    trust: Trust = ALL_CHECKED


def recover(
    filesystem: Filesystem, directory: Path, chunks: Chunks, quarantine: Quarantine, on_progress: Progress | None = None
) -> Recovered:
    """Read the directory, and cut off a torn end. Changes nothing else."""
    try:
        meta = read_meta(filesystem, directory)
    except MetaUnreadable as unreadable:
        kept = quarantine.keep_file(META_FILE)
        found = _scanned(chunks, chunks.first, WITHOUT_META, on_progress)
        found.notes.append(
            f"{META_FILE} cannot be read: {unreadable}. It is kept as {kept}; every chunk was read instead"
        )
    else:
        if meta is None:
            found = _scanned(chunks, chunks.first, WITHOUT_META, on_progress)
            if chunks.starts:
                found.notes.append(f"{META_FILE} is missing; every chunk was read instead")
        else:
            found = _by_meta(chunks, meta, on_progress)
    _cut_torn_end(chunks, quarantine, found)
    return found


def _by_meta(chunks: Chunks, meta: Meta, on_progress: Progress | None) -> Recovered:
    if not chunks.starts:
        found = Recovered(meta.writer_offset, meta.writer_offset, durable=meta.writer_offset)
        if meta.entry_count:
            found.notes.append(f"all chunks are missing: {meta.entry_count} batches are lost")
        return found
    reader = max(meta.reader_offset, chunks.first) if meta.entry_count or meta.version < 2 else meta.reader_offset
    if meta.version < 2:
        found = _scanned(chunks, reader, _trust_of(meta), on_progress)
        found.notes.append(f"{META_FILE} is of version {meta.version}: every block was read to count the batches")
        return found
    found = Recovered(reader, meta.writer_offset, meta.entry_count, meta.total_bytes, meta.confirmed)
    found.durable, found.trust = meta.writer_offset, _trust_of(meta)
    if chunks.end < meta.writer_offset:
        found.notes.append(
            f"the chunks end at {chunks.end}, {meta.writer_offset - chunks.end} bytes short of what was durable"
        )
        return found
    tail = _scanned(chunks, meta.writer_offset, found.trust, on_progress)
    found.writer = tail.writer
    found.batches += tail.batches
    found.bytes += tail.bytes
    found.damages = tail.damages
    if tail.batches:
        found.notes.append(f"{tail.batches} batches were written after {META_FILE} and are adopted")
    return found


def _trust_of(meta: Meta) -> Trust:
    # Behind its own meta, a queue of the originals may go on with blocks that have no CRC.
    snappy_until = EVERYWHERE if meta.checked_from >= meta.writer_offset > 0 else 0
    return Trust(meta.checked_from, snappy_until)


def _scanned(chunks: Chunks, start: int, trust: Trust, on_progress: Progress | None) -> Recovered:
    found = Recovered(start, start, trust=trust)
    end = chunks.end
    for block in walk(chunks, start, end, trust):
        if isinstance(block, Block):
            found.batches += 1
            found.bytes += len(block.data)
            found.writer = block.end
        else:
            found.damages.append(block)
        if on_progress is not None:
            on_progress(block.end - start, end - start)
    return found


def _cut_torn_end(chunks: Chunks, quarantine: Quarantine, found: Recovered) -> None:
    """What stands behind the last whole block, and is vouched for by no meta, was being written when the end came."""
    end = max(found.writer, found.durable)
    if chunks.end <= end:
        found.writer = end
        return
    kept = quarantine.keep_bytes(chunks, end, chunks.end)
    found.notes.append(f"{chunks.end - end} bytes of a torn write at {end} are kept as {kept}")
    found.damages = [damage for damage in found.damages if damage.start < end]
    found.writer = end
    chunks.truncate(end)


def covered(ranges: Sequence[Range], offset: int) -> int | None:
    """The end of the confirmed range that holds this offset, None if none does."""
    return next((end for start, end in ranges if start <= offset < end), None)
