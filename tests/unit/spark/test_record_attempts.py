"""A record that fails is tried again, and then `on_error` decides; the world's faults are never a record's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from forebay.errors import Transient
from forebay.flows import Error, Filter, Record, RecordAction, RecordContext, Result, Retry
from forebay.flows.action import ActionParams
from forebay.flows.record_action import BadRecord, Outcome, RecordTooSlow
from forebay.spark.record_attempts import PAUSES_SECONDS_MAX, Attempts, Bad, RecordStep, Skipped
from forebay.spark.record_faults import Blame, blame

CONTEXT = RecordContext("act", "clicks")
RECORD = Record.of({"seq": 7, "user": "ann"})
THREE_TIMES = Retry(max_attempts=3, delay=timedelta(seconds=2), multiplier=3)


class Doing(RecordAction):
    """Does what a test says, and counts how often."""

    schema = "user STRING"

    def __init__(self, act: Callable[[int], Any]) -> None:
        super().__init__(ActionParams())
        self.calls = 0
        self._act = act

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        self.calls += 1
        return self._act(self.calls)  # type: ignore[no-any-return]


def failing(fault: BaseException, times: int = 1000) -> Doing:
    def act(call: int) -> Outcome:
        if call <= times:
            raise fault
        return Result({"user": "ann"})

    return Doing(act)


def attempts(
    action: RecordAction, pauses: list[float] | None = None, *, is_stream: bool = False, **of: Any
) -> Attempts:
    return Attempts(
        RecordStep(action, "act", **of), is_stream=is_stream, pause=([] if pauses is None else pauses).append
    )


def test_results_and_filters_are_given_on() -> None:
    assert attempts(Doing(lambda _: {"user": "ann"})).judge(RECORD, CONTEXT) == [Result({"user": "ann"})]
    assert attempts(Doing(lambda _: Filter("test"))).judge(RECORD, CONTEXT) == Filter("test")


def test_error_is_a_bad_record_without_a_second_attempt() -> None:
    action, pauses = Doing(lambda _: Error("no user")), list[float]()
    assert attempts(action, pauses, retry=THREE_TIMES, on_error="fail").judge(RECORD, CONTEXT) == Bad("no user")
    assert (action.calls, pauses) == (1, [])


def test_record_that_passes_when_it_is_tried_again_is_no_bad_record() -> None:
    action, pauses = failing(ValueError("not yet"), times=2), list[float]()
    assert attempts(action, pauses, retry=THREE_TIMES).judge(RECORD, CONTEXT) == [Result({"user": "ann"})]
    assert pauses == [2, 6]


def test_record_that_goes_on_failing_is_bad_with_cause_and_traceback() -> None:
    action = failing(ValueError("no such user"))
    found = attempts(action, retry=THREE_TIMES).judge(RECORD, CONTEXT)
    assert isinstance(found, Bad)
    assert found.cause == "ValueError: no such user"
    assert found.traceback.startswith("Traceback (most recent call last):")
    assert found.traceback.endswith("ValueError: no such user")
    assert action.calls == 3


def test_on_error_skip_leaves_the_record_out_and_fail_raises_with_its_seq() -> None:
    assert attempts(failing(ValueError("no")), on_error="skip").judge(RECORD, CONTEXT) == Skipped("ValueError: no")
    with pytest.raises(ValueError, match="no") as raised:
        attempts(failing(ValueError("no")), on_error="fail").judge(RECORD, CONTEXT)
    assert raised.value.__notes__ == ["action 'act' fails on seq 7, and its on_error is fail"]


@pytest.mark.parametrize("fault", [ConnectionResetError("gone"), TimeoutError("5 s"), Transient("away"), OSError("io")])
def test_fault_of_the_world_is_raised_at_once_and_blamed_on_no_record(fault: Exception) -> None:
    action, pauses = failing(fault), list[float]()
    with pytest.raises(type(fault)):
        attempts(action, pauses, retry=THREE_TIMES, on_error="skip").judge(RECORD, CONTEXT)
    assert (action.calls, pauses) == (1, [])


def test_cause_of_the_world_behind_an_exception_of_the_action_counts() -> None:
    def ask() -> None:
        raise ConnectionRefusedError("the price list does not answer")

    def act(_: int) -> Outcome:
        try:
            ask()
        except ConnectionRefusedError as away:
            raise ValueError("no price") from away
        return {}

    with pytest.raises(ValueError, match="no price"):
        attempts(Doing(act)).judge(RECORD, CONTEXT)


def test_nothing_given_is_a_fault_of_the_action() -> None:
    found = attempts(Doing(lambda _: None)).judge(RECORD, CONTEXT)
    assert isinstance(found, Bad)
    assert found.cause.startswith("TypeError: transform gave None")


def test_call_that_takes_too_long_has_failed_on_its_record() -> None:
    def act(call: int) -> Outcome:
        if call == 1:
            threading.Event().wait()
        return {"user": "ann"}

    two = Retry(max_attempts=2, delay=timedelta(0))
    assert attempts(Doing(act), retry=two, time_limit_seconds=0.01).judge(RECORD, CONTEXT) == [Result({"user": "ann"})]
    found = attempts(Doing(act), time_limit_seconds=0.01).judge(RECORD, CONTEXT)
    assert isinstance(found, Bad)
    assert found.cause == "forebay.flows.record_action.RecordTooSlow: transform took longer than 0.01 s"


def test_limit_of_the_class_holds_where_the_step_has_none() -> None:
    class Slow(Doing):
        time_limit_seconds = 0.01

    assert RecordStep(Slow(lambda _: {}), "slow").limit_seconds == 0.01
    assert RecordStep(Slow(lambda _: {}), "slow", time_limit_seconds=5).limit_seconds == 5


def test_pauses_of_a_partition_are_limited_and_attempts_are_not() -> None:
    action, pauses = failing(ValueError("no")), list[float]()
    judge = attempts(action, pauses, retry=Retry(max_attempts=2, delay=timedelta(seconds=25)))
    for _ in range(5):
        judge.judge(RECORD, CONTEXT)
    assert pauses == [25, 25, 10]
    assert sum(pauses) == PAUSES_SECONDS_MAX
    assert action.calls == 10


def test_in_a_stream_all_is_raised_at_once_for_the_search() -> None:
    action = failing(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        attempts(action, is_stream=True, retry=THREE_TIMES, on_error="skip").judge(RECORD, CONTEXT)
    assert action.calls == 1
    with pytest.raises(BadRecord, match="no user"):
        attempts(Doing(lambda _: Error("no user")), is_stream=True).judge(RECORD, CONTEXT)


@pytest.mark.parametrize(("fault", "expected"), [(BadRecord("x"), Blame.BAD), (RecordTooSlow("x"), Blame.RECORD)])
def test_what_a_record_action_raises_in_a_stream_is_blamed_on_the_record(fault: Exception, expected: Blame) -> None:
    name = f"{type(fault).__module__}.{type(fault).__qualname__}"
    assert blame(f"PythonException: Traceback (most recent call last):\n  File x\n{name}: x\n\tat java") is expected
