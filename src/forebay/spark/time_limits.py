"""A limit on how long one call may take, by the timer of the process.

Spark's Python processes run functions in their main thread, where a signal interrupts what waits for a network, a lock
or a sleep, and what computes in Python. What computes in C (a regular expression, a large sort) is interrupted when it
returns. Outside of the main thread there are no signals: there the call is judged when it has ended.

A timer and a handler that were set before are set again afterwards, with what is left of their time.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from forebay.flows.record_action import RecordTooSlow

T = TypeVar("T")
_SECONDS_MIN = 1e-6
"""A timer that is due is set to this: 0 would switch it off."""


class _TimeIsUp(BaseException):
    """Not an Exception: an action that catches those must not catch this."""


def limited(call: Callable[[], T], seconds: float) -> T:
    """What the call gives. Raises RecordTooSlow if it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        return _judged_afterwards(call, seconds)
    is_over = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        if not is_over:
            raise _TimeIsUp

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, _SECONDS_MIN))
    try:
        try:
            return call()
        finally:
            is_over = True
    except _TimeIsUp:
        raise _too_slow(seconds) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), _SECONDS_MIN), interval)


def _judged_afterwards(call: Callable[[], T], seconds: float) -> T:
    began = time.monotonic()
    result = call()
    if time.monotonic() - began > seconds:
        raise _too_slow(seconds)
    return result


def _too_slow(seconds: float) -> RecordTooSlow:
    return RecordTooSlow(f"transform took longer than {seconds:g} s")
