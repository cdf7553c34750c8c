from __future__ import annotations

from forebay.sendqueue.breaker import Breaker, State
from forebay.testing.fake_clock import FakeClock


def opened(clock: FakeClock) -> Breaker:
    breaker = Breaker(clock, threshold=3, reset_seconds=30)
    for _ in range(3):
        assert breaker.allow()
        breaker.failure()
    return breaker


def test_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(FakeClock(), threshold=3)
    for _ in range(2):
        breaker.failure()
    breaker.success()
    for _ in range(2):
        breaker.failure()
    assert breaker.state == State.CLOSED.value
    breaker.failure()
    assert breaker.state == State.OPEN.value
    assert breaker.opened == 1


def test_open_rejects_until_the_reset_time_has_passed_then_lets_one_probe_through() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    assert not breaker.allow()
    assert breaker.seconds_until_probe() == 30
    clock.advance(30)
    assert breaker.allow()
    assert breaker.state == State.HALF_OPEN.value
    assert not breaker.allow()
    assert breaker.rejected == 2


def test_the_probe_decides() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(30)
    assert breaker.allow()
    breaker.failure()
    assert breaker.state == State.OPEN.value
    assert breaker.opened == 2
    clock.advance(30)
    assert breaker.allow()
    assert breaker.success()
    assert breaker.state == State.CLOSED.value
    assert not breaker.success()


def test_the_reset_time_counts_from_the_last_failure_and_not_by_the_wall_clock() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    clock.step(3_600)
    assert not breaker.allow()
    clock.advance(20)
    breaker.failure()
    clock.advance(20)
    assert not breaker.allow()
    clock.advance(10)
    assert breaker.allow()


def test_a_probe_that_was_given_up_leaves_room_for_another() -> None:
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(30)
    assert breaker.allow()
    breaker.undecided()
    assert breaker.allow()


def test_switched_off_it_never_opens() -> None:
    breaker = Breaker(FakeClock(), threshold=1, is_enabled=False)
    for _ in range(9):
        breaker.failure()
    assert breaker.allow()
