"""Record actions of a chain: those that follow each other run in one Python process."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.errors import InvariantBroken
from forebay.flows.definition import Action, ClassAction, Flow
from forebay.flows.record_action import RecordAction
from forebay.flows.registry import find_action
from forebay.spark.flow_plan import made_action
from forebay.spark.record_attempts import RecordStep


def is_record_action(action: Action) -> bool:
    return isinstance(action, ClassAction) and issubclass(find_action(action.class_name), RecordAction)


def record_runs(actions: Sequence[Action]) -> list[list[int]]:
    """The numbers of the actions, record actions that follow each other together."""
    runs: list[list[int]] = []
    for number, action in enumerate(actions):
        if number and is_record_action(action) and is_record_action(actions[number - 1]):
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def record_step(flow: Flow, action: Action) -> RecordStep:
    """A record action, with what the flow says of its failures."""
    if not isinstance(action, ClassAction) or not isinstance(made := made_action(action), RecordAction):
        raise InvariantBroken(f"{action.name!r} is no record action")
    limit = None if action.time_limit is None else action.time_limit.total_seconds()
    return RecordStep(made, action.name, flow.on_error_of(action), flow.retry_of(action), limit)
