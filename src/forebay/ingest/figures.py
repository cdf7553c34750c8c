"""The buffers in numbers: for `/api/v1/status/buffers`, `/metrics` and `forebay buffers`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import Lane
from forebay.ingest.drainer import Drainer
from forebay.ingest.frames import chunks
from forebay.ingest.health import StoreHealth
from forebay.ingest.kept import DrainCounts


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
    pending_by_lane: dict[str, int]
    appended_by_lane: dict[str, int]
    queues: dict[str, int]
    partitions_fenced: int
    failed_files: list[FailedFileFigures]
    damaged_files: list[str]
    strangers: list[str]
    counts: dict[str, DrainCounts]


NO_BUFFERS = BufferFigures(0, 0, True, "", 0, 0, 0.0, False, {}, {}, {}, 0, [], [], [], {})


class LaneFigures(NamedTuple):
    """What the event loop knows of a lane, as of one moment."""

    events: int
    failed_events: int
    appended: int
    queues: dict[str, int]
    partitions: int
    failed: dict[str, str]
    """The queue of each failed file."""
    counts: DrainCounts


def lane_figures(drainer: Drainer) -> LaneFigures:
    """For the event loop, which changes all of this: nobody else may look through it. So it copies, and no more."""
    backlog = drainer.lane.backlog
    return LaneFigures(
        events=backlog.events,
        failed_events=drainer.failed_events,
        appended=drainer.lane.appended,
        queues=backlog.by_queue(),
        partitions=backlog.partitions(),
        failed={name: queue for queue, names in drainer.failed.items() for name in names},
        counts=replace(drainer.counts),
    )


def figures_of(
    directory: BufferDirectory, lanes: dict[Lane, LaneFigures], health: StoreHealth, now_us: int, *, is_owner: bool
) -> BufferFigures:
    """Reads the directory, so not on the event loop."""
    queues: Counter[str] = Counter()
    for one in lanes.values():
        queues.update(one.queues)
    sizes = {one.path.name: one.size for one in directory.failed.files()}
    owners = {name: queue for one in lanes.values() for name, queue in one.failed.items()}
    pending = {lane: one.events - one.failed_events for lane, one in lanes.items()}
    return BufferFigures(
        pending=sum(pending.values()),
        failed=sum(one.failed_events for one in lanes.values()),
        is_db_healthy=health.is_healthy,
        reason=health.reason,
        failovers=health.failovers,
        size_bytes=directory.waiting_bytes() + directory.failed.size_bytes(),
        oldest_seconds=_oldest_seconds(directory, now_us),
        is_owner=is_owner,
        pending_by_lane={str(lane): count for lane, count in pending.items()},
        appended_by_lane={str(lane): one.appended for lane, one in lanes.items()},
        queues=dict(queues),
        partitions_fenced=lanes[Lane.FAILOVER].partitions,
        failed_files=[FailedFileFigures(name, owners.get(name, ""), size) for name, size in sizes.items()],
        damaged_files=[path.name for path in directory.failed.damaged()],
        strangers=directory.strangers(),
        counts={str(lane): one.counts for lane, one in lanes.items()},
    )


def _oldest_seconds(directory: BufferDirectory, now_us: int) -> float:
    """The age of the oldest event: the first in each file that is not drained yet."""
    paths = [one.path for one in directory.failed.files()]
    paths += [path for lane in Lane for path in (directory.processing(lane), directory.active(lane))]
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
