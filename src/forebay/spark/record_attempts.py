"""One record through one action: tried, tried again, and what becomes of it when it goes on failing.

| `transform` | in a parcel | in a stream |
|---|---|---|
| gives results, or `Filter` | that | that |
| gives `Error` | bad | raises `BadRecord`, which the flow's search sets aside |
| raises what is the record's fault | tried as `retry` says, then bad, skipped or raised, as `on_error` says | raises |
| raises what is the world's fault | raises | raises |

A stream is not tried again in place, because the flow's search does that for the record that fails alone.

**Limit.** The pauses between attempts take `PAUSES_SECONDS_MAX` in all records of a partition together; after that
records are tried as often, but without pauses. So a batch in which every record fails ends.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from forebay.flows.definition import OnError, Retry
from forebay.flows.flow_report import CAUSE_CHARACTERS_MAX
from forebay.flows.record_action import (
    BadRecord,
    Error,
    Filter,
    Outcome,
    Record,
    RecordAction,
    RecordContext,
    Result,
    as_results,
)
from forebay.spark.flow_causes import TRACEBACK_CHARACTERS_MAX
from forebay.spark.record_faults import Blame, blame
from forebay.spark.time_limits import limited

PAUSES_SECONDS_MAX = 60.0
ONCE = Retry(max_attempts=1)


@dataclass(frozen=True, slots=True)
class RecordStep:
    """An action of a flow, and how its failures are treated."""

    action: RecordAction
    name: str
    on_error: OnError = "queue"
    retry: Retry = ONCE
    time_limit_seconds: float | None = None
    """Without one: the action's own."""

    @property
    def limit_seconds(self) -> float | None:
        return self.action.time_limit_seconds if self.time_limit_seconds is None else self.time_limit_seconds


@dataclass(frozen=True, slots=True)
class Bad:
    """A record for the error queue."""

    cause: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is left out, because `on_error` says so."""

    cause: str


Judged = list[Result] | Filter | Bad | Skipped


class Attempts:
    """Judges the records of one partition. `pause` waits for so many seconds."""

    def __init__(self, step: RecordStep, *, is_stream: bool, pause: Callable[[float], None] = time.sleep) -> None:
        self._step = step
        self._limit_seconds = step.limit_seconds
        self._is_stream = is_stream
        self._delays = [] if is_stream else step.retry.delays_seconds()
        self._pause = pause
        self._pauses_seconds_left = PAUSES_SECONDS_MAX

    def judge(self, record: Record, context: RecordContext) -> Judged:
        """What becomes of the record. Raises what is not the record's fault, and for a stream what is."""
        for delay in self._delays:
            try:
                return self._judged(as_results(self._transformed(record, context)))
            except Exception as fault:
                if _is_of_the_world(fault):
                    raise
            self._wait(delay)
        try:
            return self._judged(as_results(self._transformed(record, context)))
        except Exception as fault:
            if self._is_stream or _is_of_the_world(fault):
                raise
            return self._given_up(fault, record)

    def bad(self, cause: str) -> Bad:
        """A record that the action does not fail on, and that is bad all the same. For a stream it is raised."""
        cause = cause[:CAUSE_CHARACTERS_MAX]
        if self._is_stream:
            raise BadRecord(cause)
        return Bad(cause)

    def _transformed(self, record: Record, context: RecordContext) -> Outcome:
        action = self._step.action
        if self._limit_seconds is None:
            return action.transform(record, context)
        return limited(lambda: action.transform(record, context), self._limit_seconds)

    def _judged(self, found: list[Result] | Filter | Error) -> Judged:
        return self.bad(str(found.cause)) if isinstance(found, Error) else found

    def _wait(self, seconds: float) -> None:
        seconds = min(seconds, self._pauses_seconds_left)
        self._pauses_seconds_left -= seconds
        if seconds > 0:
            self._pause(seconds)

    def _given_up(self, fault: Exception, record: Record) -> Bad | Skipped:
        if self._step.on_error == "fail":
            seq = f" on seq {record['seq']}" if "seq" in record else ""
            fault.add_note(f"action {self._step.name!r} fails{seq}, and its on_error is fail")
            raise fault
        cause = "".join(traceback.format_exception_only(fault)).strip()[:CAUSE_CHARACTERS_MAX]
        if self._step.on_error == "skip":
            return Skipped(cause)
        return Bad(cause, "".join(traceback.format_exception(fault)).strip()[-TRACEBACK_CHARACTERS_MAX:])


def _is_of_the_world(fault: Exception) -> bool:
    """Judged by the text that Spark would show of it, so that one rule holds for all actions."""
    return blame("".join(traceback.format_exception(fault))) is Blame.WORLD
