"""The last hour: bounded, shared, and right about rates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.journey.figures import Look, StoreLook
from forebay.api.journey.rates import rate
from forebay.api.journey.recorder import QUEUES_MAX, SAMPLES_MAX, Recorder
from forebay.api.journey.series import Series
from forebay.api.queue_figures import QueueNow
from forebay.testing.fake_clock import FakeClock


def queue(name: str, accepted: int, waiting: int) -> QueueNow:
    return QueueNow(name, "", "", 1, 1, accepted, waiting, 0, waiting, 0.0, 0, 0, ())


class Scene:
    """A journey whose queues the test sets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queues: list[QueueNow] = []
        self.looks = 0
        self.recorder = Recorder(self.look, self.clock)

    async def look(self, last: Look | None) -> Look:
        self.looks += 1
        return Look(self.clock.now_us(), taken_here=0, store=StoreLook(queues=tuple(self.queues)))

    async def sample(self, queues: Iterable[QueueNow], seconds: float = 10.0) -> None:
        self.queues = list(queues)
        self.clock.advance(seconds)
        await self.recorder.sample()


async def test_rate_is_what_was_stored_between_two_samples() -> None:
    scene = Scene()
    await scene.sample([queue("a", 100, 100)])
    await scene.sample([queue("a", 150, 120)])
    times, series = scene.recorder.history()
    assert len(times) == 2
    assert series["queues.in"] == [0.0, 5.0]
    assert series["queues.out"] == [0.0, 3.0]
    assert series["queues.waiting"] == [100, 120]
    assert scene.recorder.history_of("a")[1:] == ([100, 120], [0.0, 5.0])


async def test_queue_that_is_made_again_counts_as_nothing_and_not_as_less() -> None:
    scene = Scene()
    await scene.sample([queue("a", 100, 100)])
    await scene.sample([queue("a", 10, 10)])
    assert scene.recorder.history()[1]["queues.in"] == [0.0, 0.0]


async def test_queue_that_comes_later_has_gaps_before_it_and_a_deleted_one_is_forgotten() -> None:
    scene = Scene()
    await scene.sample([queue("a", 1, 1)])
    await scene.sample([queue("a", 1, 1), queue("b", 5, 5)])
    assert scene.recorder.history_of("b")[1] == [None, 5]
    await scene.sample([queue("b", 5, 5)])
    assert scene.recorder.history_of("a") == ([], [], [])


async def test_history_is_an_hour_of_so_many_queues_at_most() -> None:
    scene = Scene()
    many = [queue(f"q{number:04}", 1, number) for number in range(QUEUES_MAX + 5)]
    await scene.sample(many)
    assert scene.recorder.history_of("q0000") == ([], [], []), "the one with the least waiting is left out"
    assert scene.recorder.history_of(f"q{QUEUES_MAX:04}")[1] == [QUEUES_MAX]
    for _ in range(SAMPLES_MAX + 3):
        await scene.sample(many[:1])
    times, series = scene.recorder.history()
    assert len(times) == len(series["queues.waiting"]) == SAMPLES_MAX


async def test_look_is_shared_by_all_who_ask_within_two_seconds() -> None:
    scene = Scene()
    await asyncio.gather(*(scene.recorder.moment() for _ in range(20)))
    assert scene.looks == 1
    scene.clock.advance(2.5)
    await scene.recorder.moment()
    assert scene.looks == 2


@given(st.lists(st.floats(allow_nan=False), max_size=30), st.integers(1, 10), st.integers(0, 12))
def test_series_keeps_the_newest_values_in_order(values: list[float], capacity: int, missed: int) -> None:
    series = Series(capacity, missed)
    for value in values:
        series.add(value)
    assert series.values() == [*[None] * missed, *values][-capacity:]


@pytest.mark.parametrize(
    ("before", "after", "span_us", "expected"),
    [(0, 10, 2_000_000, 5.0), (10, 0, 1_000_000, 0.0), (None, 1, 1, None), (1, None, 1, None), (1, 2, 0, None)],
)
def test_rate_is_per_second_and_never_negative(
    before: int | None, after: int | None, span_us: int, expected: float | None
) -> None:
    assert rate(before, after, span_us) == expected
