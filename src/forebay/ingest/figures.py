"""The buffers in numbers: for `/api/v1/status/buffers`, `/metrics` and `forebay buffers`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from forebay.clock import Clock
from forebay.ingest.buffer_directory import BufferDirectory, Lane
from forebay.ingest.drainer import DrainCounts, Drainer
from forebay.ingest.frames import chunks
from forebay.ingest.health import StoreHealth


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


def figures_of(
    directory: BufferDirectory, drainers: dict[Lane, Drainer], health: StoreHealth, clock: Clock
) -> BufferFigures:
    """Reads the directory, so not on the event loop."""
    lanes = {lane: drainer.lane for lane, drainer in drainers.items()}
    queues: dict[str, int] = {}
    for lane in lanes.values():
        for queue, count in lane.backlog.by_queue().items():
            queues[queue] = queues.get(queue, 0) + count
    failed = sum(drainer.failed_events for drainer in drainers.values())
    sizes = {one.path.name: one.size for one in directory.failed_files()}
    owners = {name: queue for drainer in drainers.values() for queue, names in drainer.failed.items() for name in names}
    return BufferFigures(
        pending=sum(lane.backlog.events for lane in lanes.values()) - failed,
        failed=failed,
        is_db_healthy=health.is_healthy,
        reason=health.reason,
        failovers=health.failovers,
        size_bytes=directory.waiting_bytes() + directory.failed_bytes(),
        oldest_seconds=_oldest_seconds(directory, clock.now_us()),
        is_owner=lanes[Lane.FAILOVER].is_owner,
        pending_by_lane={name: lane.backlog.events - drainers[name].failed_events for name, lane in lanes.items()},
        appended_by_lane={name: lane.appended for name, lane in lanes.items()},
        queues=queues,
        partitions_fenced=lanes[Lane.FAILOVER].backlog.partitions(),
        failed_files=[FailedFileFigures(name, owners.get(name, ""), size) for name, size in sizes.items()],
        damaged_files=[path.name for path in directory.damaged_files()],
        strangers=directory.strangers(),
        counts={name: drainer.counts for name, drainer in drainers.items()},
    )


def _oldest_seconds(directory: BufferDirectory, now_us: int) -> float:
    """The age of the oldest event: the first in each file that is not drained yet."""
    paths = [one.path for one in directory.failed_files()]
    paths += [path for lane in Lane for path in (directory.processing(lane), directory.active(lane))]
    ages = [age for path in paths if (age := _age_of_first(directory, path, now_us)) is not None]
    return max(ages, default=0.0)


def _age_of_first(directory: BufferDirectory, path: Path, now_us: int) -> float | None:
    try:
        size, start = directory.size(path), directory.position(path)
        file = directory.open_to_read(path)
    except OSError:  # drained in this moment
        return None
    try:
        chunk = next(chunks(file, start, size, bytes_max=4096, events_max=1), None)
    finally:
        file.close()
    return (now_us - chunk.events[0].accepted_us) / 1e6 if chunk and chunk.events else None
