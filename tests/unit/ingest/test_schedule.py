"""When QoS 0 events are due."""

from __future__ import annotations

import math

from forebay.ingest.schedule import FlushSchedule


def test_nothing_is_due_before_a_push() -> None:
    schedule = FlushSchedule(0.1, 100)
    assert not schedule.is_due(1e9)
    assert schedule.seconds_until_due(0.0, 5.0) == 5.0


def test_the_earlier_of_time_and_number_counts() -> None:
    schedule = FlushSchedule(0.1, 100)
    assert schedule.note(1, 500, 3, now=10.0)
    assert not schedule.is_due(10.4)
    assert schedule.is_due(10.5)
    assert not schedule.note(1, 900, 3, now=10.1)
    assert not schedule.is_due(10.1)
    assert schedule.note(1, 900, 3, now=10.2)
    assert schedule.is_due(10.2)


def test_most_impatient_push_decides_for_all() -> None:
    schedule = FlushSchedule(0.1, 100)
    schedule.note(1, 5000, 1000, now=0.0)
    schedule.note(1, 20, 1000, now=0.0)
    assert schedule.seconds_until_due(0.0, 9.0) == 0.02


def test_what_a_push_does_not_say_comes_from_the_settings() -> None:
    schedule = FlushSchedule(0.25, 2)
    schedule.note(1, None, None, now=0.0)
    assert schedule.seconds_until_due(0.0, 9.0) == 0.25
    schedule.note(1, None, None, now=0.0)
    assert schedule.is_due(0.0)


def test_flush_starts_anew_and_failed_flush_is_due_again() -> None:
    schedule = FlushSchedule(0.1, 100)
    schedule.note(99, 100, None, now=0.0)
    schedule.flushed()
    assert schedule.seconds_until_due(0.0, math.inf) == math.inf
    schedule.put_off(1.0)
    assert schedule.is_due(1.0)
