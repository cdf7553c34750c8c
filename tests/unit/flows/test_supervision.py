"""When a flow is started, restarted, paused: laws of the decisions, without a worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.flows.supervision import (
    PAUSE_SECONDS_MAX,
    Standing,
    State,
    Step,
    Wish,
    completed_batch,
    failed,
    next_step,
    pause_seconds,
    paused,
    started,
)

FAILED = Standing(State.FAILED, failures=1, cause="bad SQL")
NO_WISH = Wish()


def after_failures(count: int) -> Standing:
    standing = Standing()
    for _ in range(count):
        standing = failed(started(standing, NO_WISH), "down", is_final=False, wish=NO_WISH, now=0, jitter=0.5)
    return standing


def test_new_flow_is_started_at_once() -> None:
    assert next_step(Standing(), NO_WISH, 0.0) is Step.START


def test_failed_query_is_started_again_when_its_pause_is_over() -> None:
    standing = after_failures(3)
    assert (standing.state, standing.start_at) == (State.RESTARTING, 4.0)
    assert next_step(standing, NO_WISH, 3.9) is Step.NOTHING
    assert next_step(standing, NO_WISH, 4.0) is Step.START
    assert started(standing, NO_WISH).restarts == 3


def test_flow_that_does_not_compile_is_left_alone_until_it_is_resumed() -> None:
    assert next_step(FAILED, NO_WISH, 1e9) is Step.NOTHING
    assert next_step(FAILED, Wish(resumes=1), 0.0) is Step.START
    again = failed(FAILED, "bad SQL", is_final=True, wish=Wish(resumes=1), now=0.0, jitter=0.0)
    assert next_step(again, Wish(resumes=1), 1e9) is Step.NOTHING


@pytest.mark.parametrize("state", [state for state in State if state is not State.PAUSED])
def test_pause_stops_a_flow_in_any_state(state: State) -> None:
    assert next_step(Standing(state), Wish(is_paused=True), 0.0) is Step.STOP


def test_paused_flow_waits_for_the_resume() -> None:
    standing = paused(Standing(State.RUNNING, restarts=2), Wish(is_paused=True))
    assert (standing.state, standing.restarts) == (State.PAUSED, 2)
    assert next_step(standing, Wish(is_paused=True), 1e9) is Step.NOTHING
    assert next_step(standing, Wish(resumes=1), 0.0) is Step.START


def test_resume_does_not_touch_a_flow_that_runs() -> None:
    assert next_step(Standing(State.RUNNING), Wish(resumes=5), 0.0) is Step.NOTHING


def test_resume_cuts_a_pause_short() -> None:
    assert next_step(after_failures(9), Wish(resumes=1), 0.0) is Step.START


def test_completed_batch_ends_the_count_of_failures() -> None:
    well = completed_batch(started(after_failures(6), NO_WISH))
    assert (well.failures, well.cause, well.restarts) == (0, "", 6)
    assert failed(well, "x", is_final=False, wish=NO_WISH, now=0.0, jitter=0.5).start_at == 1.0


@given(st.integers(1, 100_000), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_and_stay_within_their_bounds(failures: int, jitter: float) -> None:
    pause = pause_seconds(failures, jitter)
    assert 0.75 <= pause <= PAUSE_SECONDS_MAX * 1.25
    assert pause_seconds(failures + 1, jitter) >= pause


def test_flows_that_failed_together_do_not_come_back_together() -> None:
    assert pause_seconds(4, 0.0) == 6.0
    assert pause_seconds(4, 1.0) == 10.0
