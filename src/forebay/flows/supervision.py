"""When a flow is started, stopped, and started again: decisions from values and a clock, nothing else.

    starting ──▶ running ──▶ restarting ──▶ running …       a failure; after a pause it is tried again, for ever
        │           │
        │           ├──▶ failed                             what no repetition heals: the flow does not compile
        │           └──▶ paused                             on an order; `resume` starts it again, also a failed one
        └──▶ failed      stopped, lost                      the worker ended, or is not heard any more

The pause doubles with each failure from 1 s to 60 s, give or take a quarter, so that flows which failed together do
not come back together. A batch that is completed ends the count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

PAUSE_SECONDS_MIN = 1.0
PAUSE_SECONDS_MAX = 60.0
JITTER = 0.25
CAUSE_CHARACTERS_MAX = 2_000


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"
    PAUSED = "paused"
    STOPPED = "stopped"
    LOST = "lost"
    """Its worker has not been heard for a while. Only servers say so."""


class Step(StrEnum):
    """What is to be done with a flow now."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Wish:
    """The orders of people. `resumes` counts how often, so that a failed flow can be ordered to try again."""

    is_paused: bool = False
    resumes: int = 0
    runs_at: str = ""
    """Another worker that has the flow."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a flow."""

    state: State = State.STARTING
    failures: int = 0
    """In a row, without a completed batch between."""
    restarts: int = 0
    cause: str = ""
    start_at: float = 0.0
    """By the monotonic clock: not before."""
    resumes_seen: int = 0


def next_step(standing: Standing, wish: Wish, now: float) -> Step:
    """What to do with a flow."""
    if wish.is_paused:
        return Step.STOP if standing.state is not State.PAUSED else Step.NOTHING
    if standing.state is State.PAUSED or wish.resumes > standing.resumes_seen:
        return Step.NOTHING if standing.state is State.RUNNING else Step.START
    if standing.state in (State.STARTING, State.RESTARTING) and now >= standing.start_at:
        return Step.START
    return Step.NOTHING


def started(standing: Standing, wish: Wish) -> Standing:
    """After its queries were started."""
    restarts = standing.restarts + (standing.state is State.RESTARTING)
    return replace(standing, state=State.RUNNING, restarts=restarts, resumes_seen=wish.resumes)


def paused(standing: Standing, wish: Wish) -> Standing:
    return Standing(State.PAUSED, restarts=standing.restarts, resumes_seen=wish.resumes)


def completed_batch(standing: Standing) -> Standing:
    """After a batch: whatever was wrong before is over."""
    return replace(standing, failures=0, cause="")


def failed(standing: Standing, cause: str, *, is_final: bool, wish: Wish, now: float, jitter: float) -> Standing:
    """After a failure. `jitter` is a random number from 0 up to 1."""
    state = State.FAILED if is_final else State.RESTARTING
    failures = standing.failures + 1
    return replace(
        standing,
        state=state,
        failures=failures,
        cause=cause[:CAUSE_CHARACTERS_MAX],
        start_at=now + pause_seconds(failures, jitter),
        resumes_seen=wish.resumes,
    )


def pause_seconds(failures: int, jitter: float) -> float:
    """How long to wait after so many failures in a row."""
    doubled = PAUSE_SECONDS_MIN * 2.0 ** min(failures - 1, 30)
    return float(min(doubled, PAUSE_SECONDS_MAX) * (1 - JITTER + 2 * JITTER * jitter))
