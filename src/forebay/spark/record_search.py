"""The search for the records because of which a job fails: parts of its messages are run until what fails is alone.

`forebay.flows.narrowing` says which parts. A record that fails alone is tried again as the action's `retry` says,
unless SQL failed on a value. Then the first action that fails on it is looked for, whose `on_error` decides.

**Not row by row.** Where an action sums, sorts or keeps state, only those before it are searched: what fails behind
them may be the fault of many records, or of none of these, and fails the flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from forebay.flows.definition import Action, ClassAction, Flow, OnError
from forebay.flows.flow_directory import SetAside
from forebay.flows.narrowing import Bad, narrow
from forebay.flows.registry import find_action
from forebay.flows.worker import FlowFailed
from forebay.spark.flow_causes import cause_of, traceback_of
from forebay.spark.flow_plan import DoesNotCompile
from forebay.spark.record_faults import Blame, blame
from forebay.spark.row_wise import other_operator

SINK = "sink"

Part = Callable[[DataFrame, int | None], AbstractContextManager[DataFrame]]
"""What so many of the actions make of messages; with None, all of them, and what the sink does with the result."""


class Interrupted(Exception):
    """The flow is to stop; what was found so far is searched for again at the next start."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How many of the actions can be searched, and why no more."""

    actions: int | None
    """None: all, and the sink."""
    obstacle: str = ""


class RecordSearch:
    """One search, over messages that Spark keeps meanwhile."""

    def __init__(
        self,
        flow: Flow,
        actions: Sequence[Action],
        messages: DataFrame,
        part: Part,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._flow = flow
        self._actions = actions
        self._messages = messages
        self._part = part
        self._is_stopping = is_stopping
        self.has_healed = False
        """Whether a record that failed alone passed when it was tried again: then the batch may pass as well."""

    def find(self, failure: str, known: frozenset[int] = frozenset()) -> list[SetAside]:
        """The records to set aside, as their actions' `on_error` says. Empty: none of them fails alone.

        Raises FlowFailed where it is not the records' fault, or where a record is to stop the flow, TooManyFail, and
        Interrupted. `known` are seqs that are set aside already.
        """
        reach = self._reach()
        first = self._messages.agg(f.min("seq"), f.max("seq")).first()
        if first is None or first[0] is None:
            return []

        def attempt(start: int, end: int) -> str | None:
            if self._is_stopping():
                raise Interrupted
            wanted = self._messages.where((f.col("seq") >= start) & (f.col("seq") < end))
            with self._part(wanted, reach.actions) as frame:
                return self._failure_of(frame)

        if attempt(first[0], first[1] + 1) is None:
            if reach.obstacle:
                raise FlowFailed(f"{cause_of(Exception(failure))}\n{reach.obstacle}")
            return []
        suspects = [bad for bad in narrow(first[0], first[1] + 1, attempt) if bad.seq not in known]
        blamed = [(bad, self._action_of(bad, reach.actions)) for bad in suspects]
        lasting = self._tried_again(blamed, attempt)
        for bad, action in lasting:
            if self._on_error_of(bad, action) == "fail":
                raise FlowFailed(f"{_name(action)} fails on seq {bad.seq}: {cause_of(Exception(bad.failure))}")
        return [_set_aside(bad, action, self._on_error_of(bad, action) == "queue") for bad, action in lasting]

    def _on_error_of(self, bad: Bad, action: Action | None) -> OnError:
        """`on_error` is for what fails; a record that an action calls bad has not failed."""
        return "queue" if blame(bad.failure) is Blame.BAD else self._flow.on_error_of(action)

    def _reach(self) -> Reach:
        for count, action in enumerate(self._actions, 1):
            obstacle = _stateful(action)
            if not obstacle:
                try:
                    with self._part(self._messages, count) as frame:
                        obstacle = other_operator(frame) or ""
                except DoesNotCompile as fault:
                    obstacle = str(fault.cause)
            if obstacle:
                text = f"action {action.name!r} is not row by row ({obstacle}), so that no record is blamed behind it"
                return Reach(count - 1, text)
        return Reach(None)

    def _failure_of(self, frame: DataFrame) -> str | None:
        try:
            frame.write.format("noop").mode("overwrite").save()
        except PySparkException as fault:
            if self._is_stopping():
                raise Interrupted from fault
            text = str(fault)
            if blame(text) is Blame.WORLD:
                raise FlowFailed(cause_of(fault)) from fault
            return text
        return None

    def _action_of(self, bad: Bad, actions: int | None) -> Action | None:
        """The first action that fails on the record; None if all pass, and the sink is to blame."""
        one = self._messages.where(f.col("seq") == bad.seq)
        for count, action in enumerate(self._actions[:actions], 1):
            with self._part(one, count) as frame:
                if self._failure_of(frame) is not None:
                    return action
        return None

    def _tried_again(
        self, blamed: Sequence[tuple[Bad, Action | None]], attempt: Callable[[int, int], str | None]
    ) -> list[tuple[Bad, Action | None]]:
        """Those that go on failing, each tried as often as its action's `retry` says."""
        lasting = []
        for bad, action in blamed:
            delays = self._flow.retry_of(action).delays_seconds() if blame(bad.failure) is Blame.RECORD else []
            lasting.append((bad, action, delays))
        for attempt_number in range(max((len(delays) for _, _, delays in lasting), default=0)):
            due = [item for item in lasting if len(item[2]) > attempt_number]
            if not due:
                break
            self._wait(max(item[2][attempt_number] for item in due))
            healed = {bad.seq for bad, _, _ in due if attempt(bad.seq, bad.seq + 1) is None}
            lasting = [item for item in lasting if item[0].seq not in healed]
            self.has_healed |= bool(healed)
        return [(bad, action) for bad, action, _ in lasting]

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._is_stopping():
                raise Interrupted
            time.sleep(min(left, 0.2))


def _stateful(action: Action) -> str:
    return "it keeps state" if isinstance(action, ClassAction) and find_action(action.class_name).is_stateful else ""


def _name(action: Action | None) -> str:
    return SINK if action is None else f"action {action.name!r}"


def _set_aside(bad: Bad, action: Action | None, is_queued: bool) -> SetAside:
    return SetAside(
        seq=bad.seq,
        action=SINK if action is None else action.name,
        cause=cause_of(Exception(bad.failure)),
        traceback="" if blame(bad.failure) is Blame.BAD else traceback_of(bad.failure),
        is_queued=is_queued,
    )
