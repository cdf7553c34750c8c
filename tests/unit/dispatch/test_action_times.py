"""How long workers have parcels, by action class."""

from __future__ import annotations

from forebay.dispatch.action_times import CLASSES_MAX, LEASES_MAX, OTHER, ActionTimes
from forebay.testing.fake_clock import FakeClock


def test_a_lease_counts_from_its_beginning_to_its_completion() -> None:
    clock = FakeClock()
    times = ActionTimes(clock)
    times.began("a", "geo")
    clock.advance(3)
    times.ended("a")
    times.ended("a")
    times.ended("of another server")
    assert (times.now()["geo"].count, times.now()["geo"].sum_seconds) == (1, 3.0)


def test_a_lease_that_is_given_back_does_not_count() -> None:
    times = ActionTimes(FakeClock())
    times.began("a", "geo")
    times.forget("a")
    times.ended("a")
    assert times.now() == {}


def test_leases_and_classes_are_bounded() -> None:
    times = ActionTimes(FakeClock())
    for number in range(LEASES_MAX + 1):
        times.began(f"lease-{number}", f"class-{number}")
    for number in range(LEASES_MAX + 1):
        times.ended(f"lease-{number}")
    assert len(times.now()) == CLASSES_MAX + 1
    assert times.now()[OTHER].count == LEASES_MAX - CLASSES_MAX  # the first one was forgotten
