"""What every send queue promises, whichever way it keeps its batches."""

from __future__ import annotations

import contextlib

import pytest

from fixtures.sendqueues import LIMITS, MODES, drained, open_queue
from forebay.errors import BatchTooLarge, SendQueueFull
from forebay.sendqueue.queue import RELEASED_MAX, Limits, SendQueue
from forebay.testing.fake_clock import FakeClock
from forebay.testing.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


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


def test_a_queue_of_one_mode_finds_what_another_mode_left(mode: str, disk: SimulatedDisk) -> None:
    for other in MODES:
        queue = open_queue(other, disk)
        queue.push(other.encode())
        queue.close()
    assert sorted(drained(open_queue(mode, disk))) == sorted(other.encode() for other in MODES)
