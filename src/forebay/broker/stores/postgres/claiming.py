"""Taking from partitions that are locked: read what is new, let `delivery` decide, write what it decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

from forebay.broker import delivery
from forebay.broker.delivery import Candidates, Claim, DeadLetter, DeliveryState
from forebay.broker.messages import ANSWER_BYTES_MAX, Message, PopRequest, count_within
from forebay.broker.queue_rules import visible_count, visible_us, window_end_us
from forebay.broker.stores.postgres.connections import Connection, rows
from forebay.broker.stores.postgres.deliveries import Burial, Delivery, bury, save
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.queries import query
from forebay.model.queue import QueueOptions

_partition_of = itemgetter(0)


class QueueAndGroup(NamedTuple):
    """A queue that a pop may take from, and its group there."""

    queue_id: int
    queue: str
    options: QueueOptions
    group_id: int


class Taken(NamedTuple):
    """A partition whose delivery is locked."""

    partition_id: int
    partition: str
    newest_us: int
    state: DeliveryState


class Claimed(NamedTuple):
    """What came of one transaction."""

    partitions: int
    messages: list[Message]
    is_cut_short: bool
    """Whether it buried as much as it may, so that there may be living messages behind."""
    dropped: Mapping[str, int] = {}
    """Messages of which no dead letter is kept, by the kind of reason."""


class _Decided(NamedTuple):
    """What becomes of one partition."""

    partition_id: int
    claim: Claim
    due_us: int | None
    dead: list[DeadLetter]


class _Content(NamedTuple):
    transaction_id: str
    created_us: int
    trace_id: str
    payload: bytes
    headers: bytes
    is_binary: bool


class Claiming:
    """One pop in one transaction on one queue."""

    def __init__(
        self,
        connection: Connection,
        place: QueueAndGroup,
        request: PopRequest,
        lease_id: str,
        now_us: int,
        limits: PostgresLimits,
        *,
        is_whole: bool = False,
    ) -> None:
        self._is_whole = is_whole
        """Whether it takes what a lost lease covered, and nothing else."""
        self._connection = connection
        self._place = place
        self._request = request
        self._lease_id = lease_id
        self._now_us = now_us
        self._limits = limits
        self._contents: dict[int, _Content] = {}
        """Messages that were read whole, by seq."""
        self._sizes: dict[int, int] = {}
        """Bytes of payloads, by seq."""
        self._buried = 0
        self._buried_bytes = 0

    async def claim(self, taken: Sequence[Taken]) -> Claimed:
        """Take as many messages as are requested."""
        left = self._request
        fresh: dict[int, Candidates] = {}
        if not self._is_whole:
            fresh = await self._read_fresh(taken, left.batch, left.bytes_max, is_whole=len(taken) == 1)
        claims: list[_Decided] = []
        delivered: list[tuple[Taken, int, int]] = []
        for one in taken:
            if left.batch <= 0 or left.bytes_max <= 0 or self._has_buried_enough():
                break  # what was not looked at stays due
            claim, due, dead = await self._claim_one(one, fresh.get(one.partition_id, Candidates()), left)
            claims.append(_Decided(one.partition_id, claim, due, dead))
            delivered += [(one, seq, attempts) for seq, attempts in claim.delivered]
            left = left.after(len(claim.taken), sum(self._sizes.get(pending.seq, 0) for pending in claim.taken))
        await self._read_contents([seq for _, seq, _ in delivered if seq not in self._contents])
        gone = {seq for _, seq, _ in delivered if seq not in self._contents}
        messages = [self._message(*found) for found in delivered if found[1] not in gone]
        if self._request.check is not None:
            self._request.check(messages)
        await self._write([self._without(decided, gone) for decided in claims] if gone else claims)
        claimed = sum(any(seq not in gone for seq, _ in decided.claim.delivered) for decided in claims)
        dropped = delivery.dropped_by_kind(letter for decided in claims for letter in decided.dead)
        return Claimed(claimed, messages, self._has_buried_enough(), dropped)

    def _without(self, decided: _Decided, gone: set[int]) -> _Decided:
        """Less what was removed or deleted in this very moment: no answer to it is to be awaited."""
        state = delivery.without_gone(decided.claim.state, lambda seq: seq not in gone)
        if state is decided.claim.state:
            return decided
        due = delivery.due_us(state, self._place.options, self._now_us)
        return decided._replace(claim=decided.claim._replace(state=state), due_us=due)

    async def _write(self, claims: Sequence[_Decided]) -> None:
        burials = [
            Burial(decided.partition_id, self._request.group, letter) for decided in claims for letter in decided.dead
        ]
        saved = [
            Delivery(
                self._place.group_id,
                decided.partition_id,
                decided.claim.state,
                decided.due_us,
                sum(letter.is_dropped for letter in decided.dead),
            )
            for decided in claims
        ]
        await bury(self._connection, burials, self._now_us)
        await save(self._connection, saved, self._now_us)

    async def _claim_one(
        self, one: Taken, fresh: Candidates, left: PopRequest
    ) -> tuple[Claim, int | None, list[DeadLetter]]:
        """Decide for one partition; also when to look at it next, and which messages died."""
        options, now_us = self._place.options, self._now_us
        until_us = 0 if self._is_whole else window_end_us(one.newest_us, options, now_us)
        if until_us:
            lease_end_us = delivery.due_us(one.state, options, now_us) if one.state.is_leased_at(now_us) else 0
            return Claim((), (), one.state), max(lease_end_us or 0, until_us), []
        state, dead = await self._without_expired(one.state), list[DeadLetter]()
        while True:
            ready = _first_visible(fresh, options, now_us)
            claim = await self._decided(state, ready, left)
            if claim is None:
                due = delivery.due_us(state, options, now_us)
                if due is None and len(ready.seqs) < len(fresh.seqs):
                    due = visible_us(fresh.created_us[len(ready.seqs)], options)
                return Claim((), (), state), due, dead
            state = claim.state
            dead += claim.dead
            self._count_buried(claim.dead)
            self._buried += 0 if claim.taken else len(ready.seqs) - len(claim.dead)  # those that are for other groups
            if claim.taken or self._is_whole or self._has_buried_enough():
                return claim, delivery.due_us(state, options, now_us), dead
            # Everything that was read is dead: the next may be alive. Without payloads, as most may be dead too.
            limit = max(left.batch, self._limits.reach_messages_min)
            again = await self._read_fresh([one._replace(state=state)], limit, ANSWER_BYTES_MAX, is_whole=False)
            fresh = again.get(one.partition_id, Candidates())

    async def _without_expired(self, state: DeliveryState) -> DeliveryState:
        """What was delivered before and has outlived the queue's `ttl` since is finished."""
        options, now_us = self._place.options, self._now_us
        waiting = [pending.seq for pending in state.pending if not pending.is_finished]
        if not options.ttl_seconds or not waiting or delivery.is_held(state, options, now_us):
            return state
        values: dict[str, object] = {"queue_id": self._place.queue_id, "seqs": waiting}
        created = cast("list[tuple[int, int]]", await rows(self._connection, query("pop_read_created"), values))
        expired = {seq for seq, created_us in created if delivery.is_expired(now_us - created_us, options)}
        return delivery.without_gone(state, lambda seq: seq not in expired)

    def _count_buried(self, dead: Sequence[DeadLetter]) -> None:
        self._buried += len(dead)
        for letter in dead:
            self._buried_bytes += self._sizes.pop(letter.seq, 0)
            self._contents.pop(letter.seq, None)

    def _has_buried_enough(self) -> bool:
        limits = self._limits
        return self._buried >= limits.buried_messages_max or self._buried_bytes >= limits.buried_bytes_max

    async def _decided(self, state: DeliveryState, ready: Candidates, left: PopRequest) -> Claim | None:
        def claim(batch: int) -> Claim | None:
            return delivery.claim(
                state,
                ready,
                self._place.options,
                group=self._request.group,
                now_us=self._now_us,
                batch=batch,
                lease_id=self._lease_id,
                auto_ack=left.auto_ack,
                lease_seconds=left.lease_seconds,
                is_whole=self._is_whole,
            )

        taken = claim(left.batch)
        if taken is None:
            return None
        await self._read_sizes([pending.seq for pending in taken.taken if pending.seq not in self._sizes])
        fitting = count_within([self._sizes.get(pending.seq, 0) for pending in taken.taken], left.bytes_max)
        return taken if fitting == len(taken.taken) else claim(fitting)

    async def _read_fresh(
        self, taken: Sequence[Taken], limit: int, bytes_max: int, *, is_whole: bool
    ) -> dict[int, Candidates]:
        values: dict[str, object] = {
            "partition_ids": [one.partition_id for one in taken],
            "seen_seqs": [one.state.last_seen_seq() for one in taken],
            "limit": limit,
            "bytes_max": bytes_max,
            "is_whole": is_whole,
        }
        found = cast("list[tuple[Any, ...]]", await rows(self._connection, query("pop_read_fresh"), values))
        self._sizes.update({row[1]: row[4] for row in found})
        if is_whole:
            self._contents.update({seq: _Content(id_, us, *rest) for _, seq, id_, us, _, *rest in found})
        return {
            partition_id: _candidates(own)
            for partition_id, own in groupby(sorted(found, key=_partition_of), _partition_of)
        }

    async def _read_sizes(self, seqs: list[int]) -> None:
        if seqs:
            values: dict[str, object] = {"queue_id": self._place.queue_id, "seqs": seqs}
            found = await rows(self._connection, query("pop_read_sizes"), values)
            self._sizes.update(cast("list[tuple[int, int]]", found))

    async def _read_contents(self, seqs: list[int]) -> None:
        if not seqs:
            return
        values: dict[str, object] = {"queue_id": self._place.queue_id, "seqs": seqs}
        found = cast("list[tuple[Any, ...]]", await rows(self._connection, query("pop_read_messages"), values))
        for seq, *content in found:
            self._contents[seq] = _Content(*content)

    def _message(self, one: Taken, seq: int, attempts: int) -> Message:
        content = self._contents[seq]
        return Message(
            seq=seq,
            queue=self._place.queue,
            partition=one.partition,
            partition_id=wire_id(self._place.queue_id, one.partition_id),
            transaction_id=content.transaction_id,
            trace_id=content.trace_id,
            created_us=content.created_us,
            payload=content.payload,
            headers=content.headers,
            is_binary=content.is_binary,
            attempts=attempts,
        )


def _candidates(found: Iterable[tuple[Any, ...]]) -> Candidates:
    _, seqs, ids, created_us, _, _, _, headers, _ = zip(*found, strict=True)
    return Candidates(seqs, ids, created_us, headers)


def _first_visible(fresh: Candidates, options: QueueOptions, now_us: int) -> Candidates:
    if not options.delayed_processing_seconds:
        return fresh
    count = visible_count(fresh.created_us, options, now_us)
    seqs, ids, created, headers = fresh
    return Candidates(seqs[:count], ids[:count], created[:count], headers[:count])
