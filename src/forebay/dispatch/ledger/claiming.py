"""Claims: QUEUED steps become LEASED ones. The attempt is counted, so a worker that dies while it works has used it up.

Which parcels to try is known from the warm tier (`claim`), or found in the database while the tier is away
(`claim_from_database`, `claim_step_from_database`).

A lease of one step has parcels of one flow, version and step only: those of the first that may be leased. The others
go on waiting at their places.

Parcels of a paused flow, and of one whose rate limit is used up, stay QUEUED: `held` says until when it is of no use to
ask for more of them. Parcels whose queue is not there any more are taken out (`replaced`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.fairness import in_turn, shares
from forebay.dispatch.ledger.classes import Modes, lock_classes
from forebay.dispatch.ledger.enqueue import WARM
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.joining import joined_from
from forebay.dispatch.ledger.rate_limits import FlowLimits, flow_limits
from forebay.dispatch.ledger.replaced import Reader, Settled, settle_replaced
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import LeasedParcel, Loss, Range
from forebay.dispatch.warm import STEP_LOOKS, WarmEntry

PAUSED_US = SECOND_US
"""How long a paused flow is passed over before it is looked at again."""
_ranges = msgspec.json.Decoder(list[Range])
_encoder = msgspec.json.Encoder()


class NewLease(NamedTuple):
    """What a lease is to be."""

    lease_id: str
    worker: str
    lease_us: int
    """How long it lasts, where no step says otherwise."""
    parcels_max: int
    messages_max: int = 0
    """0: no limit. The first parcel is given whatever its size."""
    turn: int = 0
    """Which class and flow has one more, where it does not come out even."""
    same_step: bool = False
    """Only parcels of one flow, version and step."""


class Claimed(NamedTuple):
    until_us: int
    parcels: list[LeasedParcel]
    """Empty: there is no lease."""
    definitions: dict[str, FlowDefinition]
    """By `flow@version`."""
    put_back: list[WarmEntry]
    """Wait warm still: to be offered again."""
    held: dict[str, int]
    """Flows that give nothing now, and when to look at them again, in microseconds since 1970."""
    room_made: dict[str, int]
    """Cold classes, and how many parcels less wait warm in them."""
    losses: Sequence[Loss] = ()
    """Of parcels whose queues are not there any more."""


class Candidate(NamedTuple):
    """A step that waits warm, with what decides whether it may be leased."""

    did: str
    step: int
    flow: str
    action: str
    action_class: str
    place: int
    attempts: int
    ranges: str
    messages: int
    size: int
    version: int
    flow_state: str
    flow_version: int
    """Of the flow's newest definition, whose rate limit counts."""


def claim(lease: NewLease, entries: Sequence[WarmEntry]) -> Work[Claimed]:
    """Lease what the warm tier offered, in its order, as far as it still waits and may be leased."""
    modes = yield from lock_classes(entry.action_class for entry in entries)
    return (yield from _claim_locked(lease, entries, modes))


def claim_from_database(lease: NewLease, classes: Sequence[str]) -> Work[Claimed]:
    """Lease the oldest parcels of these classes, the classes in turn, and the flows in turn within each."""
    modes = yield from lock_classes(classes)
    rows = yield Ask(SQL["queued_flows"], {"classes": [[name] for name in sorted(set(classes))]})
    waiting: dict[str, dict[str, int]] = defaultdict(dict)
    for action_class, flow, queued in rows:
        waiting[action_class][flow] = queued
    of_classes = shares(
        {name: sum(flows.values()) for name, flows in waiting.items()}, lease.parcels_max, first=lease.turn
    )
    wanted = {
        (name, flow): amount
        for name, share in of_classes.items()
        for flow, amount in shares(waiting[name], share, first=lease.turn).items()
    }
    heads: dict[str, dict[str, list[WarmEntry]]] = defaultdict(lambda: defaultdict(list))
    if wanted:
        keys = [list(key) for key in wanted]
        found = yield Ask(SQL["queued_heads"], {"keys": keys, "parcels_each": max(wanted.values())})
        for row in found:
            entry = WarmEntry(*row)
            of_flow = heads[entry.action_class][entry.flow]
            if len(of_flow) < wanted[entry.action_class, entry.flow]:
                of_flow.append(entry)
    entries = in_turn([in_turn(heads[name].values()) for name in of_classes])
    claimed = yield from _claim_locked(lease, entries, modes)
    return claimed._replace(put_back=[])  # the tier did not give them: it has them still


def claim_step_from_database(lease: NewLease, action_class: str, flow: str) -> Work[Claimed]:
    """Lease the oldest parcels of a flow in a class, as many as are of one version and step."""
    modes = yield from lock_classes([action_class])
    parcels_each = lease.parcels_max + STEP_LOOKS
    rows = yield Ask(SQL["queued_heads"], {"keys": [[action_class, flow]], "parcels_each": parcels_each})
    heads = [WarmEntry(*row) for row in rows]
    entries = [entry for entry in heads if entry.step == heads[0].step][: lease.parcels_max]
    claimed = yield from _claim_locked(lease, entries, modes)
    return claimed._replace(put_back=[])  # the tier did not give them: it has them still


def _claim_locked(lease: NewLease, entries: Sequence[WarmEntry], modes: Modes) -> Work[Claimed]:
    now_us = yield Now()
    rows = yield Ask(SQL["lease_candidates"], {"keys": [(entry.did, entry.step, WARM) for entry in entries]})
    candidates = {(row[0], row[1]): Candidate(*row) for row in rows}
    versions = {(c.flow, c.version) for c in candidates.values()} | {
        (c.flow, c.flow_version) for c in candidates.values()
    }
    known = yield from definitions(sorted(versions))
    limits = yield from flow_limits({c.flow: known[c.flow, c.flow_version] for c in candidates.values()}, now_us)
    # An entry that is given twice, or whose row has moved on, is no candidate.
    waiting = [c for entry in entries if (c := candidates.pop((entry.did, entry.step), None)) is not None]
    chosen, held = _chosen(lease, waiting, limits, now_us)
    chosen, settled = yield from _of_the_queues_that_they_mean(chosen, known, now_us)
    leased: set[tuple[str, int]] = set()
    if chosen:
        keys = [(c.did, c.step, WARM) for c in chosen]
        moved = yield Ask(SQL["steps_lease"], {"keys": keys, "lease_id": lease.lease_id})
        leased = {(did, step) for did, step in moved}
        chosen = [c for c in chosen if (c.did, c.step) in leased]
    until_us = now_us + _lasts_us(lease, chosen, known)
    if chosen:
        values = {"lease_id": lease.lease_id, "worker": lease.worker, "now_us": now_us, "until_us": until_us}
        yield Ask(SQL["lease_add"], values)
    yield from limits.save()
    joining = [c.did for c in chosen if known[c.flow, c.version].steps[c.step].join is not None]
    joined = (yield from joined_from(joining)) if joining else {}
    return Claimed(
        until_us,
        [_parcel(c, joined.get(c.did, ())) for c in chosen],
        {f"{c.flow}@{c.version}": known[c.flow, c.version] for c in chosen},
        [_entry(c) for c in waiting if (c.did, c.step) not in leased | settled.ended],
        held,
        dict(Counter(c.action_class for c in chosen if modes[c.action_class])),
        settled.losses,
    )


def _entry(c: Candidate) -> WarmEntry:
    return WarmEntry(c.action_class, c.flow, c.place, c.did, c.step)


def _of_the_queues_that_they_mean(
    chosen: Sequence[Candidate], known: Mapping[tuple[str, int], FlowDefinition], now_us: int
) -> Work[tuple[list[Candidate], Settled]]:
    """Without those that would read another queue than they were cut from."""
    readers = [
        Reader(
            c.did, c.step, c.flow, c.action, _ranges.decode(c.ranges), known[c.flow, c.version].source.fail_on_data_loss
        )
        for c in chosen
    ]
    settled = yield from settle_replaced(readers, now_us)
    left = [c for c in chosen if (c.did, c.step) not in settled.ended]
    return [_shortened(c, settled.shorter.get((c.did, c.step))) for c in left], settled


def _shortened(c: Candidate, ranges: Sequence[Range] | None) -> Candidate:
    if ranges is None:
        return c
    return c._replace(ranges=_encoder.encode(ranges).decode(), messages=sum(each.messages for each in ranges))


def _chosen(
    lease: NewLease, waiting: Iterable[Candidate], limits: FlowLimits, now_us: int
) -> tuple[list[Candidate], dict[str, int]]:
    """Which of those that wait are given, in order. A flow of which one is passed over gives no later one either."""
    chosen: list[Candidate] = []
    held: dict[str, int] = {}
    messages = 0
    for candidate in waiting:
        if len(chosen) == lease.parcels_max:
            break
        if candidate.flow in held or (lease.same_step and chosen and _step_of(candidate) != _step_of(chosen[0])):
            continue
        if candidate.flow_state == "PAUSED":
            held[candidate.flow] = now_us + PAUSED_US
        elif (open_us := limits.open_us(candidate.flow)) > now_us:
            held[candidate.flow] = open_us
        elif lease.messages_max and chosen and messages + candidate.messages > lease.messages_max:
            break
        else:
            chosen.append(candidate)
            messages += candidate.messages
            limits.spend(candidate.flow, candidate.messages, candidate.size)
    return chosen, held


def _step_of(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.flow, candidate.version, candidate.step


def _lasts_us(lease: NewLease, chosen: Sequence[Candidate], known: dict[tuple[str, int], FlowDefinition]) -> int:
    """As long as the step that takes longest: all parcels of a lease are completed together."""
    given = [known[c.flow, c.version].steps[c.step].lease_seconds for c in chosen]
    return max([lease.lease_us if seconds is None else int(seconds * SECOND_US) for seconds in given] or [0])


def _parcel(c: Candidate, joined: Sequence[str]) -> LeasedParcel:
    ranges, attempt = _ranges.decode(c.ranges), c.attempts + 1
    return LeasedParcel(
        c.did, c.step, c.flow, c.version, c.action, c.action_class, attempt, ranges, c.messages, c.size, joined
    )
