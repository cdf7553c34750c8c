"""Parcels come to a step and wait for a worker, warm or cold.

The classes' rows are locked before their sizes are read, so decisions on several servers follow each other: a class
never holds more warm parcels than its capacity, and no parcel goes warm while an older one of its flow waits cold in
the class. Parcels that arrive together are placed in the order of their places in line.

A flow that is paused drains nothing. Its cold parcels do not make the class cold for other flows; further parcels of
the flow itself go cold behind them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.ledger.classes import Modes, count_classes, lock_classes, set_modes
from forebay.dispatch.ledger.history import REQUEUES, count
from forebay.dispatch.tables import SQL
from forebay.dispatch.tiering import place_arriving
from forebay.dispatch.values import NewStep
from forebay.dispatch.warm import WarmEntry

WARM, COLD = "QUEUED", "COLD_QUEUED"
REQUEUED_FROM = ("ERROR", "LEASED", "JOINING")


class Enqueued(NamedTuple):
    """What the caller does after the commit: offer the warm ones to workers."""

    warm: list[WarmEntry]
    went_cold: list[str]
    """Classes that were warm before."""

    def plus(self, other: Enqueued) -> Enqueued:
        return Enqueued(self.warm + other.warm, self.went_cold + other.went_cold)


NOTHING_ENQUEUED = Enqueued([], [])


class WaitingStep(NamedTuple):
    """A step that exists and is to wait for a worker again, as it was read."""

    did: str
    step: int
    flow: str
    action: str
    action_class: str
    state: str
    place: int
    attempts: int
    lease_id: str


S = TypeVar("S", NewStep, WaitingStep)


def enqueue(steps: Sequence[NewStep], capacity: int) -> Work[Enqueued]:
    """Queue parcels at a step that they have not been to yet."""
    modes = yield from lock_classes(step.action_class for step in steps)
    return (yield from enqueue_locked(steps, capacity, modes))


def enqueue_locked(steps: Sequence[NewStep], capacity: int, modes: Modes) -> Work[Enqueued]:
    """As `enqueue`, where the caller has locked the classes."""
    if not steps:
        return NOTHING_ENQUEUED
    now_us = yield Now()
    tiers, went_cold = yield from _tiers(steps, capacity, modes)
    rows = [
        (s.did, s.step, s.flow, s.flow_type, s.action, s.action_class, tier, s.place, s.ranges, s.messages, s.size)
        for s, tier in tiers
    ]
    yield Ask(SQL["steps_enqueue"], {"steps": rows, "queued_us": now_us})
    return Enqueued([_entry(step) for step, tier in tiers if tier == WARM], went_cold)


def enqueue_again(keys: Sequence[tuple[str, int]], capacity: int, *, reset_attempts: bool) -> Work[Enqueued]:
    """Queue steps that exist and are in ERROR, LEASED or JOINING, at their old place; others are left as they are."""
    if not keys:
        return NOTHING_ENQUEUED
    rows = yield Ask(SQL["steps_to_requeue"], {"keys": [list(key) for key in keys]})
    steps = [step for row in rows if (step := WaitingStep(*row)).state in REQUEUED_FROM]
    modes = yield from lock_classes(step.action_class for step in steps)
    if reset_attempts:
        steps = [step._replace(attempts=0) for step in steps]
    return (yield from enqueue_again_locked(steps, capacity, modes))


def enqueue_again_locked(steps: Sequence[WaitingStep], capacity: int, modes: Modes) -> Work[Enqueued]:
    """Queue steps again with the attempts that they are given with. One that was moved since is left out."""
    if not steps:
        return NOTHING_ENQUEUED
    now_us = yield Now()
    tiers, went_cold = yield from _tiers(steps, capacity, modes)
    rows = [(s.did, s.step, s.state, s.lease_id, tier, s.attempts) for s, tier in tiers]
    moved = yield Ask(SQL["steps_requeue"], {"steps": rows, "queued_us": now_us})
    moved_keys = {(did, step) for did, step in moved}
    yield Ask(SQL["parcels_in_flight"], {"dids": [[did] for did, _ in moved], "now_us": now_us})
    yield from count({REQUEUES: len(moved)})
    warm = [_entry(step) for step, tier in tiers if tier == WARM and (step.did, step.step) in moved_keys]
    return Enqueued(warm, went_cold)


def _entry(step: NewStep | WaitingStep) -> WarmEntry:
    return WarmEntry(step.action_class, step.flow, step.place, step.did, step.step)


def _tiers(steps: Sequence[S], capacity: int, modes: Modes) -> Work[tuple[list[tuple[S, str]], list[str]]]:
    """Where each of the steps waits, and which classes went cold with that."""
    counts = yield from count_classes({step.action_class for step in steps})
    own_cold: set[tuple[str, str]] = set()
    if any(of_class.paused_cold for of_class in counts.values()):
        own_cold = yield from _flows_with_cold({(step.action_class, step.flow) for step in steps})
    by_class: dict[str, list[S]] = defaultdict(list)
    tiers: list[tuple[S, str]] = []
    for step in steps:
        if (step.action_class, step.flow) in own_cold:
            tiers.append((step, COLD))
        else:
            by_class[step.action_class].append(step)
    after: dict[str, bool] = {}
    for action_class, arriving in by_class.items():
        arriving.sort(key=lambda step: (step.place, step.did))
        sizes = counts[action_class].sizes(is_cold=modes[action_class])
        placement = place_arriving(sizes, len(arriving), capacity)
        after[action_class] = placement.is_cold
        tiers += [(step, WARM if number < placement.warm else COLD) for number, step in enumerate(arriving)]
    went_cold = yield from set_modes(modes, after)
    return tiers, went_cold


def _flows_with_cold(keys: Iterable[tuple[str, str]]) -> Work[set[tuple[str, str]]]:
    rows = yield Ask(SQL["flows_with_cold"], {"keys": [list(key) for key in sorted(keys)]})
    return {(action_class, flow) for action_class, flow in rows}
