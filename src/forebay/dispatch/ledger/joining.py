"""Joins: parcels wait in front of a step until there are enough of one key, or the oldest has waited long enough.

    a parcel comes to a step with `join`      → JOINING, with the value of its annotation `join.key`
    `max` of a key wait                       → the first `max` in line are joined, at once
    the oldest waits for `max_age_seconds`    → with `min` or more they are joined, else all of them go into ERROR

Joined parcels are one new parcel: it reads the ranges of all, stands where the first of them stood, and has the first
one's version. The members are COMPLETE, each with the event JOINED that names it; its own event JOIN names them.

A transaction that enters or releases has locked the step's class, so members are counted exactly on however many
servers. A row that waits for a join has a `join_key` that begins with `=`; all other rows have none. So a member that
went into ERROR because too few came is distinguished from a joined parcel that failed: resumed, it waits for the join
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US
from forebay.dispatch.definition import Join
from forebay.dispatch.dids import new_dids
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued, enqueue
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import NewStep, Range
from forebay.errors import InvariantBroken

JOIN, JOINED, ERROR = "JOIN", "JOINED", "ERROR"


class Entering(NamedTuple):
    """A parcel that comes to a step with a join."""

    step: NewStep
    join: Join
    key: str
    """As `key_of` says."""


class JoinGroup(NamedTuple):
    """Parcels that may be joined with each other."""

    flow: str
    step: int
    action: str
    action_class: str
    key: str


class _Member(NamedTuple):
    group: JoinGroup
    did: str
    place: int
    flow_type: str
    ranges: Sequence[Range]
    messages: int
    size: int
    version: int
    annotations: Mapping[str, str]


class JoinTurn(NamedTuple):
    enqueued: Enqueued = NOTHING_ENQUEUED
    joined: int = 0
    """Parcels that were made."""
    failed: int = 0
    """Members that went into ERROR because too few came."""


def key_of(join: Join, annotations: Mapping[str, str]) -> str:
    """By which a parcel is distinguished from others in front of the step; without the annotation, the empty value."""
    return "=" + (annotations.get(join.key, "") if join.key else "")


def enter(entering: Sequence[Entering], capacity: int) -> Work[Enqueued]:
    """Let parcels wait for a join, and join what is full with them."""
    if not entering:
        return NOTHING_ENQUEUED
    yield from lock_classes(wanted.step.action_class for wanted in entering)
    now_us = yield Now()
    rows = [[*wanted.step, wanted.key] for wanted in entering]
    yield Ask(SQL["join_enter"], {"steps": rows, "queued_us": now_us})
    limits = {_group(wanted): wanted.join.max for wanted in entering}
    counts = yield Ask(SQL["join_count"], {"groups": [list(group) for group in limits]})
    full: dict[JoinGroup, int] = {}
    for *group, number in counts:
        found = JoinGroup(*group)
        if number >= limits[found]:
            full[found] = limits[found]
    enqueued = NOTHING_ENQUEUED
    while full:  # a group may be full several times over
        enqueued = enqueued.plus((yield from _release(full, capacity, now_us)))
        counts = yield Ask(SQL["join_count"], {"groups": [list(group) for group in full]})
        full = {JoinGroup(*group): limits[JoinGroup(*group)] for *group, n in counts if n >= limits[JoinGroup(*group)]}
    return enqueued


def _group(wanted: Entering) -> JoinGroup:
    step = wanted.step
    return JoinGroup(step.flow, step.step, step.action, step.action_class, wanted.key)


class JoinsReady(NamedTuple):
    groups: Mapping[JoinGroup, int]
    """Full or old enough, with how many wait."""
    joins: Mapping[JoinGroup, Join]
    """What the steps say of joining, of all groups."""
    is_clock_back: bool
    """Parcels entered later than now: the clock was set back."""


def joins_ready() -> Work[JoinsReady]:
    """What there is to do for `release_due`. Only reads."""
    now_us = yield Now()
    rows = yield Ask(SQL["join_groups"])
    kept = yield from definitions([(row[0], row[-1]) for row in rows])
    groups: dict[JoinGroup, int] = {}
    joins: dict[JoinGroup, Join] = {}
    is_clock_back = False
    for *fields, number, since_us, last_us, version in rows:
        group = JoinGroup(*fields)
        join = kept[group.flow, version].steps[group.step].join
        if join is None:
            raise InvariantBroken(f"a parcel of flow {group.flow!r} waits for a join that step {group.step} has not")
        joins[group] = join
        is_clock_back = is_clock_back or last_us > now_us
        if number >= join.max or now_us - since_us >= join.max_age_seconds * SECOND_US:
            groups[group] = number
    return JoinsReady(groups, joins, is_clock_back)


def release_due(capacity: int, groups_max: int = 100) -> Work[JoinTurn]:
    """Join what is full or old enough, and fail what is old and too little; up to so many groups."""
    now_us = yield Now()
    found = yield from joins_ready()
    if found.is_clock_back:
        # They have waited since now at the latest, or they would wait for as long as the clock was set back.
        yield Ask(SQL["join_clock_back"], {"now_us": now_us})
    wanted = list(found.groups)[:groups_max]
    if not wanted:
        return JoinTurn()
    yield from lock_classes(group.action_class for group in wanted)
    found = yield from joins_ready()  # what it was before the classes were locked, another server may have released
    ready = {group: found.groups[group] for group in wanted if group in found.groups}
    enough = {group: found.joins[group].max for group, n in ready.items() if n >= found.joins[group].min}
    too_few = [group for group in ready if group not in enough]
    enqueued = (yield from _release(enough, capacity, now_us)) if enough else NOTHING_ENQUEUED
    failed = (yield from _fail(too_few, found.joins, now_us)) if too_few else 0
    return JoinTurn(enqueued, len(enough), failed)


def _members(limits: Mapping[JoinGroup, int]) -> Work[dict[JoinGroup, list[_Member]]]:
    """The first of each group, in the order of their places."""
    rows = yield Ask(SQL["join_members"], {"groups": [[*group, limit] for group, limit in limits.items()]})
    members: dict[JoinGroup, list[_Member]] = defaultdict(list)
    for *fields, did, place, flow_type, ranges, messages, size, version, noted in rows:
        group = JoinGroup(*fields)
        reading = msgspec.json.decode(ranges, type=list[Range])
        notes = msgspec.json.decode(noted, type=dict[str, str])
        members[group].append(_Member(group, did, place, flow_type, reading, messages, size, version, notes))
    return members


def _release(limits: Mapping[JoinGroup, int], capacity: int, now_us: int) -> Work[Enqueued]:
    groups = yield from _members(limits)
    dids = new_dids(len(groups), now_us)
    parcels, steps, events = [], [], []
    for did, members in zip(dids, groups.values(), strict=True):
        first, ranges = members[0], merged(reading for member in members for reading in member.ranges)
        messages, size = sum(member.messages for member in members), sum(member.size for member in members)
        notes: dict[str, str] = {}
        for member in members:
            notes = {**member.annotations, **notes}
        reading = ranges[0] if ranges else Range("", 1, 0)
        text = msgspec.json.encode(notes).decode()
        flow, step, action, action_class, _ = first.group
        parcels.append([did, flow, first.version, "", *reading[:3], messages, size, first.place, text])
        steps.append(
            NewStep(did, step, flow, first.flow_type, action, action_class, first.place, ranges, messages, size)
        )
        events += [Event(member.did, step, action, JOINED, now_us, text=did) for member in members]
        listed = msgspec.json.encode([member.did for member in members]).decode()
        events.append(Event(did, step, action, JOIN, now_us, text=listed))
    gone = [member for members in groups.values() for member in members]
    yield Ask(SQL["parcels_add"], {"parcels": parcels, "now_us": now_us})
    keys = [[member.did, member.group.step] for member in gone]
    yield Ask(SQL["join_leave"], {"steps": keys, "state": "COMPLETE", "error": ""})
    yield Ask(SQL["parcels_move"], {"parcels": [[member.did, "COMPLETE"] for member in gone], "now_us": now_us})
    yield from history(events)
    return (yield from enqueue(steps, capacity))


def _fail(groups: Sequence[JoinGroup], joins: Mapping[JoinGroup, Join], now_us: int) -> Work[int]:
    """Too few came: all of them go into ERROR."""
    found = yield from _members({group: joins[group].max for group in groups})
    events = []
    for group, members in found.items():
        join = joins[group]
        error = f"join: {len(members)} of at least {join.min} parcels came within {join.max_age_seconds:g} s"
        keys = [[member.did, group.step] for member in members]
        yield Ask(SQL["join_leave"], {"steps": keys, "state": ERROR, "error": error})
        events += [Event(member.did, group.step, group.action, ERROR, now_us, text=error) for member in members]
    yield Ask(SQL["parcels_move"], {"parcels": [[event.did, ERROR] for event in events], "now_us": now_us})
    yield from history(events)
    return len(events)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same messages in the same order, neighbours that follow on each other as one range."""
    found: list[Range] = []
    for reading in ranges:
        last = found[-1] if found else None
        if last is not None and reading == last._replace(first_seq=last.last_seq + 1, last_seq=reading.last_seq):
            found[-1] = last._replace(last_seq=reading.last_seq)
        else:
            found.append(reading)
    return found


def joined_from(dids: Sequence[str]) -> Work[dict[str, list[str]]]:
    """The members of parcels that were joined; others are left out."""
    if not dids:
        return {}
    rows = yield Ask(SQL["joined_from"], {"dids": [[did] for did in dids]})
    return {did: msgspec.json.decode(text, type=list[str]) for did, text in rows}
