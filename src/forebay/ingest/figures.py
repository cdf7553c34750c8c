"""The buffers in numbers: for `/api/v1/status/buffers`, `/metrics` and `forebay buffers`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.drainer import Drainer
from forebay.ingest.frames import chunks
from forebay.ingest.health import StoreHealth
from forebay.ingest.refused_events import DrainCounts


class FailedFileFigures(NamedTuple):
    name: str
    queue: str
    size_bytes: int


class BufferFigures(NamedTuple):
    pending: int
    """Events that wait to be stored, without the failed ones."""
    failed: int
    is_db_healthy: bool
    reason: str
    failovers: int
    size_bytes: int
    oldest_seconds: float
    is_owner: bool
    pending_by_kind: dict[str, int]
    appended_by_kind: dict[str, int]
    queues: dict[str, int]
    partitions_fenced: int
    failed_files: list[FailedFileFigures]
    damaged_files: list[str]
    strangers: list[str]
    counts: dict[str, DrainCounts]


class CountedEvents(NamedTuple):
    queues: dict[str, int]
    appended: int
    """Ever, by this process: two counts with the same number were not changed in between and back again."""


class BufferRecount(NamedTuple):
    """Events of each queue: as the server counts them, and as its files hold them."""

    kept: dict[str, int]
    counted: dict[str, int]
    is_exact: bool
    """Nothing came or went meanwhile, and no other process drains the files."""


class FileFigures(NamedTuple):
    """What the event loop knows of a buffer file, as of one moment."""

    events: int
    failed_events: int
    appended: int
    queues: dict[str, int]
    partitions: int
    failed: dict[str, str]
    """The queue of each failed file."""
    counts: DrainCounts


def file_figures(drainer: Drainer) -> FileFigures:
    """For the event loop, which changes all of this: no other thread may look through it. So it copies, and no more."""
    backlog = drainer.file.backlog
    return FileFigures(
        events=backlog.events,
        failed_events=drainer.failed_events,
        appended=drainer.file.appended,
        queues=backlog.by_queue(),
        partitions=backlog.partitions(),
        failed={name: queue for queue, names in drainer.failed.items() for name in names},
        counts=replace(drainer.counts),
    )


def figures_of(
    directory: BufferDirectory,
    kinds: dict[BufferKind, FileFigures],
    health: StoreHealth,
    now_us: int,
    *,
    is_owner: bool,
) -> BufferFigures:
    """Reads the directory, so not on the event loop."""
    queues: Counter[str] = Counter()
    for one in kinds.values():
        queues.update(one.queues)
    sizes = {one.path.name: one.size for one in directory.failed.files()}
    owners = {name: queue for one in kinds.values() for name, queue in one.failed.items()}
    pending = {kind: one.events - one.failed_events for kind, one in kinds.items()}
    return BufferFigures(
        pending=sum(pending.values()),
        failed=sum(one.failed_events for one in kinds.values()),
        is_db_healthy=health.is_healthy,
        reason=health.reason,
        failovers=health.failovers,
        size_bytes=directory.waiting_bytes() + directory.failed.size_bytes(),
        oldest_seconds=_oldest_seconds(directory, now_us),
        is_owner=is_owner,
        pending_by_kind={str(kind): count for kind, count in pending.items()},
        appended_by_kind={str(kind): one.appended for kind, one in kinds.items()},
        queues=dict(queues),
        partitions_fenced=kinds[BufferKind.FAILOVER].partitions,
        failed_files=[FailedFileFigures(name, owners.get(name, ""), size) for name, size in sizes.items()],
        damaged_files=[path.name for path in directory.failed.damaged()],
        strangers=directory.strangers(),
        counts={str(kind): one.counts for kind, one in kinds.items()},
    )


def _oldest_seconds(directory: BufferDirectory, now_us: int) -> float:
    """The age of the oldest event: the first in each file that is not drained yet."""
    paths = [one.path for one in directory.failed.files()]
    paths += [path for kind in BufferKind for path in (directory.processing(kind), directory.active(kind))]
    ages = [age for path in paths if (age := _age_of_first(directory, path, now_us)) is not None]
    return max(ages, default=0.0)


def _age_of_first(directory: BufferDirectory, path: Path, now_us: int) -> float | None:
    try:
        size, start = directory.size(path), directory.positions.of(path)
        file = directory.open_to_read(path)
    except OSError:  # drained in this moment
        return None
    try:
        chunk = next(chunks(file, start, size, bytes_max=4096, events_max=1), None)
    finally:
        file.close()
    return (now_us - chunk.events[0].accepted_us) / 1e6 if chunk and chunk.events else None
