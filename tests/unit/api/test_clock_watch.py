"""A wall clock that jumps forward is not believed for a while."""

from __future__ import annotations

from forebay.api.clock_watch import JUMP_SECONDS_MIN, WAIT_SECONDS, ClockWatch
from forebay.testing.fake_clock import FakeClock

HOURS = 3 * 3600.0


class Watched:
    """A watch that has looked once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.watch = ClockWatch()
        self.look()

    def look(self) -> float | None:
        return self.watch.look(self.clock.now_us(), self.clock.monotonic())


def test_clock_that_only_goes_on_is_believed() -> None:
    watched = Watched()
    watched.clock.advance(30 * 86_400)
    assert watched.look() is None
    assert not watched.watch.is_in_doubt


def test_clock_that_is_corrected_a_little_at_a_time_is_believed() -> None:
    watched = Watched()
    for _ in range(100):
        watched.clock.advance(30)
        watched.clock.step(JUMP_SECONDS_MIN - 1)
        assert watched.look() is None
    assert not watched.watch.is_in_doubt


def test_clock_that_jumped_is_in_doubt_and_told_once() -> None:
    watched = Watched()
    watched.clock.step(HOURS)
    assert watched.look() == HOURS
    watched.clock.advance(30)
    assert watched.look() is None
    assert watched.watch.is_in_doubt
    assert watched.watch.jumps == 1


def test_clock_that_jumped_is_believed_when_it_stays_so() -> None:
    watched = Watched()
    watched.clock.step(HOURS)
    watched.look()
    watched.clock.advance(WAIT_SECONDS - 1)
    watched.look()
    assert watched.watch.is_in_doubt
    watched.clock.advance(1)
    assert watched.look() is None
    assert not watched.watch.is_in_doubt
    watched.clock.advance(30)
    assert watched.look() is None, "it is the clock to compare with from now on"


def test_clock_that_is_set_back_is_believed_at_once() -> None:
    watched = Watched()
    watched.clock.step(HOURS)
    watched.look()
    watched.clock.advance(30)
    watched.clock.step(-HOURS)
    assert watched.look() is None
    assert not watched.watch.is_in_doubt


def test_clock_that_jumps_again_is_waited_for_again() -> None:
    watched = Watched()
    watched.clock.step(HOURS)
    watched.look()
    watched.clock.advance(WAIT_SECONDS - 1)
    watched.clock.step(HOURS)
    assert watched.look() == HOURS
    watched.clock.advance(WAIT_SECONDS - 1)
    watched.look()
    assert watched.watch.is_in_doubt


def test_clock_that_was_behind_and_is_set_back_further_is_believed() -> None:
    watched = Watched()
    watched.clock.step(-HOURS)
    assert watched.look() is None
    watched.clock.step(HOURS)
    assert watched.look() == HOURS
