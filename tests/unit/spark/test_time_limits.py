"""A call that takes too long is interrupted, and what used the timer before goes on using it."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import pytest

from forebay.flows.record_action import RecordTooSlow
from forebay.spark.time_limits import limited


def wait_for_ever() -> None:
    threading.Event().wait()


def test_call_in_time_gives_its_result() -> None:
    assert limited(lambda: 7, 60) == 7


def test_call_that_takes_too_long_is_interrupted() -> None:
    with pytest.raises(RecordTooSlow, match=r"transform took longer than 0\.01 s"):
        limited(wait_for_ever, 0.01)


def test_action_that_catches_every_exception_is_interrupted_all_the_same() -> None:
    def stubborn() -> str:
        try:
            wait_for_ever()
        except Exception:  # noqa: BLE001 - as some actions do
            return "caught"
        return "over"

    with pytest.raises(RecordTooSlow):
        limited(stubborn, 0.01)


def test_what_the_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0, 60)


def test_timer_and_handler_of_before_are_set_again() -> None:
    rung: list[int] = []

    def ring(number: int, _frame: FrameType | None) -> None:
        rung.append(number)

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, 1000, 500)
    try:
        limited(lambda: None, 60)
        assert signal.getsignal(signal.SIGALRM) is ring
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 900 < left <= 1000
        assert interval == 500
        assert rung == []
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_timer_that_was_due_meanwhile_rings_afterwards() -> None:
    rung = threading.Event()
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    timer = signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(RecordTooSlow):
            limited(wait_for_ever, 0.05)
        assert rung.wait(10)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_outside_of_the_main_thread_a_call_is_judged_when_it_has_ended() -> None:
    found: list[object] = []

    def judge() -> None:
        found.append(limited(lambda: 7, 60))
        try:
            limited(lambda: None, -1)
        except RecordTooSlow as slow:
            found.append(str(slow))

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join()
    assert found == [7, "transform took longer than -1 s"]
