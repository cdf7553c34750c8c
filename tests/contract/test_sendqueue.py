"""What every send queue promises, whichever way it keeps its batches."""

from __future__ import annotations

import contextlib
import errno

import pytest

from fixtures.sendqueues import LIMITS, MODES, drained, open_fastqueue, open_queue
from forebay.errors import BatchTooLarge, SendQueueFull, SendQueueWriteFailed
from forebay.sendqueue.queue import RELEASED_MAX, Limits, SendQueue
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation
from forebay.testing.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(mode: str, disk: SimulatedDisk, clock: FakeClock) -> SendQueue[bytes]:
    return open_queue(mode, disk, clock)


def named(count: int, size: int = 40) -> list[bytes]:
    return [b"%04d" % number + b"x" * (size - 4) for number in range(count)]


def test_every_batch_comes_out_once(queue: SendQueue[bytes], mode: str) -> None:
    batches = named(20)
    for batch in batches:
        queue.push(batch)
    found = drained(queue)
    assert sorted(found) == batches
    if mode != "hybrid":
        assert found == batches
    assert queue.claim() is None
    assert queue.figures().batches == queue.figures().bytes == 0


def test_a_hybrid_queue_is_drained_memory_first_and_in_fifo_order_as_it_was_filled(clock: FakeClock) -> None:
    tiers, fifo = open_queue("hybrid", SimulatedDisk(), clock), open_queue("fifo", SimulatedDisk(), clock)
    for batch in named(24):
        tiers.push(batch)
        fifo.push(batch)
    # Up to 80 % all go to memory, up to 90 % every second one, and then none.
    on_disk = {16, 18, 20, 21, 22, 23}
    expected = [*sorted(set(range(24)) - on_disk), *sorted(on_disk)]
    assert [int(batch[:4]) for batch in drained(tiers)] == expected
    assert drained(fifo) == named(24)


def test_a_claimed_batch_is_not_claimed_again_and_counts_until_it_is_confirmed(queue: SendQueue[bytes]) -> None:
    queue.push(b"one")
    entry = queue.claim()
    assert entry is not None
    assert queue.claim() is None
    assert (queue.figures().batches, queue.figures().bytes, queue.figures().claimed) == (1, 3, 1)
    queue.confirm(entry)
    queue.confirm(entry)
    assert (queue.figures().batches, queue.figures().bytes, queue.figures().claimed) == (0, 0, 0)


def test_a_released_batch_is_back_at_its_place_in_line(queue: SendQueue[bytes]) -> None:
    for batch in named(6):
        queue.push(batch)
    first, second = queue.claim(), queue.claim()
    assert first is not None
    assert second is not None
    queue.release(second)
    queue.release(first)
    queue.release(first)
    assert drained(queue) == named(6)


def test_a_released_batch_waits_for_its_time_and_others_go_on(queue: SendQueue[bytes], clock: FakeClock) -> None:
    for batch in named(3):
        queue.push(batch)
    first = queue.claim()
    assert first is not None
    queue.release(first, delay_seconds=5)
    assert queue.due_in() == 5
    second = queue.claim()
    assert second is not None
    assert second.batch == named(3)[1]
    clock.advance(5)
    assert queue.due_in() == 0
    again = queue.claim()
    assert again is first


def test_what_waits_for_its_next_attempt_can_be_hastened(queue: SendQueue[bytes]) -> None:
    queue.push(b"one")
    entry = queue.claim()
    assert entry is not None
    queue.release(entry, delay_seconds=300)
    assert queue.claim() is None
    queue.hasten()
    assert queue.claim() is entry


def test_a_destination_that_is_away_does_not_pull_the_whole_queue_into_memory(mode: str, disk: SimulatedDisk) -> None:
    queue = open_queue(mode, disk, limits=Limits(1_000, 100_000))
    for batch in named(RELEASED_MAX * 2):
        queue.push(batch)
    claims = 0
    while (entry := queue.claim()) is not None:
        claims += 1
        queue.release(entry, delay_seconds=60)
    assert claims == RELEASED_MAX


@pytest.mark.parametrize("size", [1, LIMITS.bytes_max // 4])
def test_a_full_queue_refuses_and_takes_again_when_there_is_room(mode: str, disk: SimulatedDisk, size: int) -> None:
    queue = open_queue(mode, disk)
    with contextlib.suppress(SendQueueFull):
        for _ in range(1_000):
            queue.push(b"x" * size)
    pushed = queue.figures().batches
    with pytest.raises(SendQueueFull, match="the send queue is full"):
        queue.push(b"x" * size)
    assert pushed >= min(LIMITS.batches_max, LIMITS.bytes_max // size)
    assert len(drained(queue)) == pushed
    queue.push(b"x" * size)


def test_a_batch_that_never_fits_is_refused_for_good(queue: SendQueue[bytes]) -> None:
    with pytest.raises(BatchTooLarge, match="never fits"):
        queue.push(b"x" * (LIMITS.bytes_max + 1))
    assert queue.figures().batches == 0


def test_the_oldest_that_is_not_under_way_is_dropped(queue: SendQueue[bytes]) -> None:
    for batch in named(12):
        queue.push(batch)
    under_way, released = queue.claim(), queue.claim()
    assert under_way is not None
    assert released is not None
    queue.release(released, delay_seconds=60)
    dropped = [queue.drop_oldest(), queue.drop_oldest()]
    assert [entry.batch for entry in dropped if entry is not None] == named(12)[1:3]
    assert queue.figures().batches == 10
    queue.confirm(under_way)
    assert drained(queue) == named(12)[3:]
    assert queue.drop_oldest() is None


def test_nothing_is_lost_at_a_graceful_stop(
    mode: str, queue: SendQueue[bytes], disk: SimulatedDisk, clock: FakeClock
) -> None:
    for batch in named(20):
        queue.push(batch)
    confirmed, claimed, released = queue.claim(), queue.claim(), queue.claim()
    assert confirmed is not None
    assert claimed is not None
    assert released is not None
    queue.confirm(confirmed)
    queue.release(released, delay_seconds=300)
    queue.close()
    again = open_queue(mode, disk, clock)
    assert again.figures().batches == 19
    found = drained(again)
    assert sorted(found) == [batch for batch in named(20) if batch != confirmed.batch]
    again.close()
    assert drained(open_queue(mode, disk, clock)) == []


def test_batches_that_are_in_memory_alone_are_those_that_a_kill_costs(
    mode: str, queue: SendQueue[bytes], disk: SimulatedDisk, clock: FakeClock
) -> None:
    for batch in named(19):
        queue.push(batch)
    for _ in range(6):
        entry = queue.claim()
        assert entry is not None
        queue.confirm(entry)
    assert queue.claim() is not None
    queue.sync()
    for batch in named(3):
        queue.push(batch)
    figures = queue.figures()
    kept = open_queue(mode, disk.killed(), clock).figures().batches
    assert figures.batches - kept == figures.unwritten_batches
    assert figures.unwritten_batches == {"memory": 16, "disk": 3}.get(mode, figures.unwritten_batches)


def test_a_queue_is_as_full_as_its_nearer_limit_and_never_more(mode: str, queue: SendQueue[bytes]) -> None:
    assert queue.fill_ratio == 0
    pushed = 0
    with contextlib.suppress(SendQueueFull):
        for batch in named(1000):
            queue.push(batch)
            pushed += 1
    assert pushed < 1000
    # A hybrid queue may be full in one part, with room in the other one.
    parts = 2 if mode in ("hybrid", "fifo") else 1
    assert queue.fill_ratio == pytest.approx(pushed / (parts * LIMITS.batches_max))
    assert 0.5 <= queue.fill_ratio <= 1
    drained(queue)
    assert queue.fill_ratio == 0


def test_stops_do_not_change_the_order_where_it_is_that_of_acceptance(clock: FakeClock) -> None:
    """What is in memory is older than what has spilled, and comes first after the next start."""
    disk, batches = SimulatedDisk(), named(60)
    fifo = open_queue("fifo", disk, clock)
    for batch in batches[:20]:
        fifo.push(batch)
    for batch in batches[:2]:
        entry = fifo.claim()
        assert entry is not None
        assert entry.batch == batch
        fifo.confirm(entry)
    fifo.close()
    again = open_queue("fifo", disk, clock)
    assert again.figures().batches == 18
    again.push(batches[20])
    again.close()
    assert drained(open_queue("fifo", disk, clock)) == batches[2:21]


@pytest.mark.parametrize("then", MODES)
def test_what_a_stop_put_first_is_found_in_every_mode(then: str, clock: FakeClock) -> None:
    disk = SimulatedDisk()
    fifo = open_queue("fifo", disk, clock)
    for batch in named(20):
        fifo.push(batch)
    fifo.close()
    queue = open_queue(then, disk, clock)
    assert queue.figures().batches == 20
    queue.close()
    again = open_queue(then, disk, clock)
    assert drained(again) == named(20)
    again.push(b"new")
    again.close()
    assert drained(open_queue(then, disk, clock)) == [b"new"]


def test_a_queue_of_one_mode_finds_what_another_mode_left(mode: str, disk: SimulatedDisk) -> None:
    for other in MODES:
        queue = open_queue(other, disk)
        queue.push(other.encode())
        queue.close()
    assert sorted(drained(open_queue(mode, disk))) == sorted(other.encode() for other in MODES)


class Refusing:
    """A plan: a disk on which nothing can be made or written while `is_full`."""

    is_full = True

    def __call__(self, operation: Operation) -> Fault | None:
        needs_room = operation.name in ("make_directory", "create", "write")
        return Fail(errno.ENOSPC) if self.is_full and needs_room else None


@pytest.mark.parametrize("mode", ["hybrid", "fifo"])
def test_a_disk_part_that_cannot_be_opened_is_a_disk_that_refuses_and_memory_is_used_up_first(mode: str) -> None:
    plan = Refusing()
    queue = open_queue(mode, FaultyFilesystem(SimulatedDisk(), plan))
    for batch in named(20):
        queue.push(batch)
    assert queue.figures().memory_batches == 20
    with pytest.raises(SendQueueWriteFailed, match="No space left") as refused:
        queue.push(b"one more")
    assert refused.value.is_disk_full
    plan.is_full = False
    queue.push(b"one more")
    assert drained(queue) == [*named(20), b"one more"]


def test_a_batch_that_the_disk_refuses_does_not_overtake_older_ones_on_disk() -> None:
    plan = Refusing()
    plan.is_full = False
    queue = open_queue("fifo", FaultyFilesystem(SimulatedDisk(), plan))
    for batch in named(20):
        queue.push(batch)
    while (entry := queue.claim()) is not None and int(entry.batch[:4]) < 15:
        queue.confirm(entry)
    assert entry is not None
    queue.release(entry)  # memory holds one batch, and four are on disk, which takes no more
    plan.is_full = True
    with pytest.raises(SendQueueWriteFailed):
        queue.push(b"late")
    assert [int(batch[:4]) for batch in drained(queue)] == [15, 16, 17, 18, 19]


@pytest.mark.parametrize("mode", ["hybrid", "fifo"])
def test_a_batch_for_which_memory_has_no_room_goes_to_disk_and_costs_no_other(mode: str) -> None:
    queue = open_queue(mode, SimulatedDisk())
    batches = [b"0" * 1400, b"1" * 700, b"2" * 100]
    for batch in batches:
        queue.push(batch)
    assert queue.figures().bytes > LIMITS.bytes_max  # which holds for memory and disk each
    assert sorted(drained(queue)) == batches


def test_a_directory_that_another_process_has_open_is_a_disk_that_refuses_to_spill() -> None:
    disk = SimulatedDisk()
    queue = open_queue("hybrid", disk, limits=Limits(2, 1000))
    with contextlib.closing(open_fastqueue(disk)):
        queue.push(b"0")
        queue.push(b"1")
        with pytest.raises(SendQueueWriteFailed, match="open in a test"):
            queue.push(b"2")
