"""Where a parcel goes after a step. Pure: from what a worker tells of its lease to what is to be written.

| outcome | the step | the parcel |
|---|---|---|
| COMPLETE, a further step | COMPLETE | goes on to that step, IN_FLIGHT |
| COMPLETE, the last step | COMPLETE | COMPLETE |
| COMPLETE, the last step, with rows that a group has to pass | EXPORTING, then COMPLETE | IN_FLIGHT, then COMPLETE |
| COMPLETE, but none of its rows are left for the next step | FILTERED | FILTERED |
| COMPLETE with children | COMPLETE | COMPLETE; the children go on in its place |
| FILTERED | FILTERED | FILTERED |
| ERROR | ERROR, with a time if it is to be queued again by itself | ERROR |
| left out | queued again, or ERROR when its attempts are used up | |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.faults import OutcomeRefused
from forebay.dispatch.values import Child, Outcome, Range
from forebay.errors import InvariantBroken
from forebay.model.message import SeqRange

_ranges = msgspec.json.Decoder(list[Range])
EXPORTING = "EXPORTING"
FINISHED_BY_OUTCOME = ("COMPLETE", "FILTERED", "ERROR", EXPORTING)


class LeasedStep(NamedTuple):
    """A step of a lease, as its row stands."""

    did: str
    step: int
    flow: str
    action: str
    action_class: str
    state: str
    place: int
    attempts: int
    lease_id: str
    ranges: str
    messages: int
    size: int
    version: int


class Onward(NamedTuple):
    """A parcel, or a child of one, that goes on to a further step."""

    did: str
    definition: FlowDefinition
    step: int
    place: int
    ranges: Sequence[Range]
    messages: int
    size: int
    output: tuple[str, int] | None = None
    """So many rows of a queue that are committed with the lease: it reads those in place of `ranges`."""


class NewChild(NamedTuple):
    did: str
    parent: str
    child: Child
    is_finished: bool
    """The step that split its parent was the last."""


class Route(NamedTuple):
    """What follows from the outcomes of a lease, in their order."""

    finished: list[tuple[LeasedStep, str, Outcome]]
    """Each step with the state that it ends in."""
    onward: list[Onward]
    children: list[NewChild]
    left_out: list[LeasedStep]

    def classes(self) -> set[str]:
        """Classes that parcels are enqueued in."""
        return {parcel.definition.steps[parcel.step].action_class for parcel in self.onward} | {
            step.action_class for step in self.left_out
        }


def is_same(steps: Sequence[LeasedStep], outcomes: Sequence[Outcome]) -> bool:
    """Whether a lease whose steps stand so was completed with these outcomes, as far as steps were not queued again."""
    outcome_of = {outcome.did: outcome for outcome in outcomes}
    known = [step for step in steps if step.did in outcome_of and step.state in FINISHED_BY_OUTCOME]
    return bool(known) and all(_fits(step.state, outcome_of[step.did]) for step in known)


def _fits(state: str, outcome: Outcome) -> bool:
    """Whether a step may stand so after this outcome. One that was EXPORTING may be COMPLETE by now."""
    return state == ended_as(outcome) or (state == EXPORTING and is_awaiting(outcome))


def is_awaiting(outcome: Outcome) -> bool:
    """Whether there is something that a group has to pass first."""
    return outcome.state == "COMPLETE" and any(each.rows for each in outcome.awaits)


def ended_as(outcome: Outcome) -> str:
    """The state that a step ends in."""
    if outcome.state == "COMPLETE" and not outcome.children and outcome.output is not None and outcome.output[1] == 0:
        return "FILTERED"
    return outcome.state


def route(
    steps: Sequence[LeasedStep],
    outcomes: Sequence[Outcome],
    definitions: Mapping[tuple[str, int], FlowDefinition],
    child_dids: Sequence[str],
) -> Route:
    """What follows. Every outcome is of one of the steps; `child_dids` are as many as there are children.

    `OutcomeRefused`: something is awaited that is not the result of a last step.
    """
    by_did = {step.did: step for step in steps}
    dids = iter(child_dids)
    plan = Route([], [], [], [])
    for outcome in outcomes:
        step = by_did.pop(outcome.did)
        state = ended_as(outcome)
        if state != "COMPLETE":
            plan.finished.append((step, state, outcome))
            continue
        definition = definitions.get((step.flow, step.version))
        if definition is None:
            raise InvariantBroken(
                f"parcel {step.did} has version {step.version} of flow {step.flow!r}, which is not there"
            )
        is_last = step.step + 1 >= len(definition.steps)
        if outcome.awaits and not is_last:
            raise OutcomeRefused("awaits", f"step {step.step} of parcel {step.did} is not the last of its flow")
        plan.finished.append((step, EXPORTING if is_awaiting(outcome) else state, outcome))
        for given in outcome.children:
            child = given._replace(ranges=_of_the_same_queues(given.ranges, _ranges.decode(step.ranges)))
            new = NewChild(next(dids), step.did, child, is_last)
            plan.children.append(new)
            if not is_last:
                plan.onward.append(
                    Onward(new.did, definition, step.step + 1, step.place, child.ranges, child.messages, 0)
                )
        if not outcome.children and not is_last:
            ranges = _ranges.decode(step.ranges)
            plan.onward.append(
                Onward(
                    step.did, definition, step.step + 1, step.place, ranges, step.messages, step.size, outcome.output
                )
            )
    plan.left_out.extend(by_did.values())
    return plan


def _of_the_same_queues(parts: Sequence[Range], whole: Sequence[Range]) -> list[Range]:
    """Parts of ranges with what these know of their queues, where the worker has left that out."""
    found: list[Range] = []
    for part in parts:
        covering = None if part.identity else next((each for each in whole if _holds(each, part)), None)
        known = () if covering is None else covering[3:]
        found.append(Range(*part[:3], *known) if known else part)
    return found


def _holds(whole: Range, part: Range) -> bool:
    is_within = whole.first_seq <= part.first_seq and part.last_seq <= whole.last_seq
    return whole.queue == part.queue and is_within


def parcel_state(state: str, outcome: Outcome, goes_on: bool) -> str:
    """What a parcel is when its step ended in `state`."""
    if state == EXPORTING:
        return "IN_FLIGHT"
    return "IN_FLIGHT" if state == "COMPLETE" and goes_on and not outcome.children else state


def dealt(onward: Sequence[Onward], committed: Mapping[str, SeqRange], identities: Mapping[str, str]) -> list[Onward]:
    """Give each parcel its rows of what was committed: one after the other, in the order of the outcomes.

    Every message goes to exactly one parcel, also where there are fewer than were announced (duplicates were left out)
    or more: then the last one has them.
    """
    last_of = {parcel.output[0]: number for number, parcel in enumerate(onward) if parcel.output is not None}
    next_seqs = {queue: committed[queue].first_seq for queue in last_of if queue in committed}
    parcels: list[Onward] = []
    for number, parcel in enumerate(onward):
        if parcel.output is None:
            parcels.append(parcel)
            continue
        queue, rows = parcel.output
        ranges: list[Range] = []
        messages = 0
        if queue in next_seqs:
            first_seq, end_seq = next_seqs[queue], committed[queue].last_seq
            last_seq = end_seq if number == last_of[queue] else min(first_seq + rows - 1, end_seq)
            if last_seq >= first_seq:
                ranges = [Range(queue, first_seq, last_seq, identities.get(queue, ""), 0)]
                messages = ranges[0].messages
            next_seqs[queue] = last_seq + 1
        parcels.append(parcel._replace(ranges=ranges, messages=messages, size=0, output=None))
    return parcels
