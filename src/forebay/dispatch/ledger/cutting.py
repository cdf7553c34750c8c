"""Cutting a queue into parcels: position, parcels, their first step and the hold on their messages in one transaction.

The flow's row is locked first, so that two servers never cut the same messages, then the number that gives places,
then the class of the first step. A place is given under that lock, which is held until the transaction ends: places
increase in the order of commits, and a parcel that is seen later never stands before one that was seen earlier.

| what happened | what is done |
|---|---|
| the queue is not there | nothing; it is cut from its first message when it is made |
| the queue was made again | a loss: what of the old one was in no parcel is gone. Cut is the new one's first message |
| messages are gone that were in no parcel: cleared by a person, lost | a loss. Cut is what is there behind them |
| a loss, with the source's `failOnDataLoss` | the flow is STOPPED, with the numbers as reason; resumed, it goes on |
| a loss, without it | the flow goes on, and the log says so |
| as many parcels in ERROR as `maxErrors` allows | the flow is STOPPED, with the reason |
| the source's rate limit is used up | nothing until it is open again; parcels are no larger than the limit's amount |
| another server cuts the flow at this moment | nothing: it is done already |
"""

from __future__ import annotations

import math
from typing import NamedTuple

from forebay.broker.room_work import Ask, Edge, Now, QueueEdge, Work
from forebay.clock import SECOND_US
from forebay.dispatch.cut_plan import CutRule, Uncut, plan_cut
from forebay.dispatch.definition import RateLimit
from forebay.dispatch.dids import new_dids
from forebay.dispatch.flow_control import bucket_now, keep_bucket, source_bucket, stop_at_max_errors, stop_source
from forebay.dispatch.ledger.cut_position import Position, begin, behind_what_is_gone, keep, replaced
from forebay.dispatch.ledger.ending import cancel_readers
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued
from forebay.dispatch.ledger.flow_work import count_lost
from forebay.dispatch.ledger.flows import decoded
from forebay.dispatch.ledger.holding import hold
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.rates import Bucket, is_open, spend
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Range


class CutOptions(NamedTuple):
    capacity: int
    """How many parcels of a class may wait warm."""
    parcels_max: int = 1_000
    """How many parcels one transaction cuts at the most."""
    message_bytes: int = 0
    """The mean size of the queue's messages, as far as known."""
    seen: tuple[str, int] = ("", 0)
    """The queue's identity, and the last message that was removed of it, as they were seen lately."""


class CutResult(NamedTuple):
    enqueued: Enqueued = NOTHING_ENQUEUED
    parcels: int = 0
    messages: int = 0
    is_more: bool = False
    """Cut again at once."""
    lost: str = ""
    """Not empty: messages are gone that were in no parcel, and the source went on behind them."""
    cancelled: int = 0
    """Parcels of a queue that was made again, which an older Forebay has cut and which do not know their queue."""
    stopped: str = ""
    """Not empty: the source was stopped, and why."""


def cut(flow: str, options: CutOptions) -> Work[CutResult]:
    """Cut what the flow's source queue holds and no parcel has yet."""
    now_us = yield Now()
    rows = yield Ask(SQL["cut_lock"], {"flow": flow})
    if not rows:
        return CutResult()
    [[text, *numbers]] = rows
    position = Position(decoded(text), *numbers)
    source = position.definition.source
    edge: Edge | None = (yield QueueEdge(source.queue)) if source.kind == "queue" else None
    if edge is None:
        return CutResult()
    stopped = yield from stop_at_max_errors(position.definition, now_us)
    if stopped:
        return CutResult(stopped=stopped)
    was = position
    if edge.queue_id != was.queue_id:
        cancelled = yield from _cancel_old(was, options)
        if cancelled:
            return CutResult(is_more=True, cancelled=cancelled)
        position = yield from begin(was, edge)
        loss = replaced(was)
    else:
        position, loss = yield from behind_what_is_gone(was, edge, options.seen)
    if loss is not None and source.fail_on_data_loss:
        stopped = f"{loss.text}. Resume the flow to go on at seq {position.next_seq}"
        yield from stop_source(flow, stopped, now_us)
        yield from count_lost({flow: loss.messages})
        return CutResult(stopped=stopped)
    result = yield from _cut_within_limits(position, edge, options, now_us)
    if loss is None:
        return result
    yield from count_lost({flow: loss.messages})
    return result._replace(lost=f"{loss.text}. Cutting goes on at seq {position.next_seq}")


def _cancel_old(position: Position, options: CutOptions) -> Work[int]:
    """Cancel a piece of what reads the queue that was there before and does not know it: it would read the new one."""
    if position.queue_id == 0:
        return 0
    queue = position.definition.source.queue
    reason = f"queue {queue!r} was deleted and made again"
    cancelled = yield from cancel_readers(position.flow, queue, reason, options.parcels_max)
    return cancelled.parcels


def _cut_within_limits(position: Position, edge: Edge, options: CutOptions, now_us: int) -> Work[CutResult]:
    limit = position.definition.source.rate_limit
    bucket = (yield from bucket_now(source_bucket(position.flow), limit, now_us)) if limit is not None else None
    rule = _rule(position, options, bucket)
    if rule is None:
        return CutResult()
    return (yield from _cut_from(position, edge, rule, options, now_us, bucket))


def _rule(position: Position, options: CutOptions, bucket: Bucket | None) -> CutRule | None:
    """How large parcels may be, and how many of them; None: the rate limit is used up."""
    source = position.definition.source
    rule = CutRule(source.parcel_messages, int(source.parcel_wait_seconds * SECOND_US), options.parcels_max)
    if source.rate_limit is None or bucket is None:
        return rule
    if not is_open(bucket):
        return None
    # No parcel is larger than the limit's amount, or one of them would use up many times of it at once.
    cost = _cost(source.rate_limit, options)
    size = max(1, min(rule.parcel_messages, source.rate_limit.amount // cost))
    return rule._replace(
        parcel_messages=size, parcels_max=min(rule.parcels_max, math.ceil(bucket.tokens / (size * cost)))
    )


def _cost(limit: RateLimit, options: CutOptions) -> int:
    """Tokens for one message."""
    return max(1, options.message_bytes) if limit.unit == "bytes" else 1


def _cut_from(
    position: Position, edge: Edge, rule: CutRule, options: CutOptions, now_us: int, bucket: Bucket | None
) -> Work[CutResult]:
    source, next_seq = position.definition.source, position.next_seq
    plan = plan_cut(Uncut(next_seq, max(edge.next_seq, next_seq), position.waits_us), rule, now_us)
    messages = sum(last - first + 1 for first, last in plan.ranges)
    enqueued = NOTHING_ENQUEUED
    if plan.ranges:
        dids = new_dids(len(plan.ranges), now_us)
        removed_seq = position.removed_seq or 0
        ranges = [
            # Nothing of a range may be absent that begins behind what was removed: neighbours can be joined to one.
            Range(source.queue, first, last, edge.identity, removed_seq if removed_seq >= first else 0)
            for first, last in plan.ranges
        ]
        parcels = [
            NewParcel(did, (reading,), reading.messages, options.message_bytes)
            for did, reading in zip(dids, ranges, strict=True)
        ]
        enqueued = yield from start_parcels(position.definition, position.version, parcels, options.capacity)
        yield from hold([(edge.queue_id, position.flow, plan.ranges[0][0])])
        if bucket is not None and source.rate_limit is not None:
            spent = spend(bucket, messages * _cost(source.rate_limit, options))
            yield from keep_bucket(source_bucket(position.flow), spent)
    if (plan.next_seq, plan.waits_us) != (position.next_seq, position.waits_us):
        yield from keep(position._replace(next_seq=plan.next_seq, waits_us=plan.waits_us))
    return CutResult(enqueued, len(plan.ranges), messages, plan.is_more)
