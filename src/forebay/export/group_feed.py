"""A consumer group of the broker as a feed: messages are leased, sent, and acknowledged on the destination's yes.

The queue is the buffer, so nothing is dropped: while the destination is away the exporter leases no more than it holds
already. A lease is renewed for as long as its batch is under way or waits for its next attempt, so that waiting costs
no attempts; a process that dies loses its leases, and the messages come again 15 s later. A partition is under one
lease at a time: its messages reach the destination in order.

A batch keeps its cut: what a lease covered that was lost or given back comes again as one batch, with the messages that
it had and the same idempotency key, however much was pushed meanwhile (`PopRequest.whole_leases`). What was buried,
deleted or has expired since is missing from it, and then its key is another one. So it is as long as exports alone
consume for the group: another consumer takes messages as it asks for them.

| end of a batch | what the broker is told |
|---|---|
| the destination took it | the lease is completed |
| it refused some of it for good | those messages are dead letters of the group; the rest is completed |
| the process stops | the lease is given back: no attempt was used |
| the lease was lost (frozen process, store away) | nothing: the messages are delivered again, which is counted |

A batch that waits for its next attempt is let go with its lease. It is sent under the new one: from here too, it would
come late and behind what follows it, and hold a place of those that may wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from forebay.broker import delivery
from forebay.broker.messages import Acknowledgement, Message, Popped, PopRequest
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom, Wanted
from forebay.clock import Clock
from forebay.errors import ForebayError
from forebay.export.batch import ExportBatch, ExportMessage, MessageBatch
from forebay.export.feed import Claim
from forebay.export.outcome import SendFailed
from forebay.otlp.kinds import Kind
from forebay.sendqueue.entry import Entry, Released

PARTITIONS_MAX = 1000
LEASE_SECONDS = 15
"""So long the messages of a process that died wait for another one."""
ERROR_SECONDS = 1.0

_log = logging.getLogger("forebay.export")


@dataclass(frozen=True, slots=True)
class GroupFeedOptions:
    queue: str
    group: str
    kind: Kind = Kind.MESSAGES
    messages_max: int = 500
    bytes_max: int = 4 << 20
    wait_seconds: float = 0.2
    held_max: int = 4
    """How many batches may wait for their next attempt before no more are leased."""
    subscription: str = "all"
    poll_seconds: float = 5.0
    """How often the queue is looked at again, whatever the waiting room says."""
    renew_seconds: float = 1.0
    """How often leases are looked at."""
    renew_after_seconds: float = 4.0
    """How old a lease is when it is renewed."""


class GroupFeed:
    """A `Feed` of messages that a group leases."""

    def __init__(self, name: str, store: Store, waiting: WaitingRoom, clock: Clock, options: GroupFeedOptions) -> None:
        self.name = name
        self.options = options
        self.counts: Counter[str] = Counter()
        """leased, completed, dead: messages; lease_lost: leases."""
        self._store = store
        self._waiting = waiting
        self._clock = clock
        self._leases: dict[int, tuple[str, float]] = {}
        """Of each claim: its lease, and when that was last renewed."""
        self._buried: Counter[int] = Counter()
        """Of each claim: how many of its messages are dead letters by now."""
        self._lost: set[int] = set()
        """Claims that are being sent, and whose lease is lost."""
        self._is_backlog = False
        """Whether the last batch was full. Then more is waiting, behind the lease of its own partition perhaps: it is
        sent as soon as that one ends, and not after a pause for more to come."""
        self._released: Released[ExportBatch] = Released()
        self._number = 0
        self._turn = asyncio.Lock()
        self._is_stopping = False
        self._stopped = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._renewing = asyncio.create_task(self._renew_leases())

    # out of the queue

    async def claim(self) -> Claim | None:
        async with self._turn:
            while not self._is_stopping:
                claim = self._released.take(self._clock.monotonic())
                if claim is not None:
                    if not self._is_lease_over(claim.number):
                        return claim
                    self._lose(claim.number)
                    self._forget(claim.number)
                    continue
                if len(self._released) >= self.options.held_max:
                    due = self._released.due_in(self._clock.monotonic()) or 0.01
                    await self._pause(min(due, self.options.renew_seconds))  # a lease that is lost gives up its place
                    continue
                try:
                    popped = await self._popped()
                except ForebayError as error:
                    _log.warning("%s: %s", self.name, error, extra={"action": "export_pop_failed"})
                    await self._pause(ERROR_SECONDS)
                    continue
                if popped.messages:
                    return self._claimed(popped)
        return None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _popped(self) -> Popped:
        """Look; if there is nothing, wait until there is, and then a little for more to come."""
        options = self.options
        request = PopRequest(
            queue=options.queue,
            group=options.group,
            batch=options.messages_max,
            partitions=PARTITIONS_MAX,
            subscription_mode=options.subscription,
            bytes_max=options.bytes_max,
            lease_seconds=LEASE_SECONDS,
            whole_leases=True,
        )
        # Entered before the look, so that the end of a lease between look and wait is not missed.
        visit = self._waiting.enter(Wanted(options.group, options.queue))
        try:
            popped = await self._store.pop(request)
            visit.looked(len(popped.messages), options.messages_max)
            if popped.messages:
                return popped
            due = await self._store.seconds_until_due(request)
            visit.look_again_in(due)
            soon = min([options.poll_seconds, *([due] if due is not None else []), *self._next_due()])
            await visit.until_woken(asyncio.get_running_loop().time() + max(soon, 0.01))
        finally:
            visit.leave()
        if options.wait_seconds and not self._is_backlog:
            await self._pause(options.wait_seconds)
        return popped if self._is_stopping else await self._store.pop(request)

    def _next_due(self) -> list[float]:
        due = self._released.due_in(self._clock.monotonic())
        return [] if due is None else [due]

    def _claimed(self, popped: Popped) -> Claim:
        self._number += 1
        messages = [_outgoing(message) for message in popped.messages]
        if popped.partitions_claimed > 1:
            # A store gives partitions out in the order in which they wait, which is another one after a lost lease.
            messages.sort(key=lambda message: (message.partition, message.seq))
        key = idempotency_key(self.options.group, messages)
        batch = MessageBatch(messages, self._clock.now_us(), key, self.options.kind)
        self._is_backlog = len(messages) >= self.options.messages_max or batch.size >= self.options.bytes_max
        claim: Claim = Entry(self._number, batch, batch.size, batch.accepted_us)
        self._leases[claim.number] = (popped.lease_id, self._clock.monotonic())
        self.counts["leased"] += len(messages)
        return claim

    # what became of it

    async def confirm(self, claim: Claim) -> None:
        lease_id, _ = self._leases[claim.number]
        [completed] = await self._store.complete([lease_id])
        if self._is_backlog:
            self._waiting.announce(self.options.queue, 1)
        if completed is not None:
            self.counts["completed"] += completed.messages
        elif self._buried[claim.number] < claim.batch.items:  # when all are buried, the lease is over, and not lost
            self._lose(claim.number)
        self._forget(claim.number)

    async def release(self, claim: Claim, delay_seconds: float) -> None:
        if claim.number in self._lost:
            self._forget(claim.number)
        elif self._is_stopping:
            await self.put_back(claim)
        else:
            self._released.add(claim, self._clock.monotonic() + delay_seconds)

    async def put_back(self, claim: Claim) -> None:
        lease = self._leases.get(claim.number)
        self._forget(claim.number)
        if lease is not None:
            with contextlib.suppress(ForebayError):
                await self._store.release(lease[0], as_whole=True)

    async def bury(self, claim: Claim, part: ExportBatch, failed: SendFailed) -> None:
        lease_id, _ = self._leases[claim.number]
        if not isinstance(part, MessageBatch):
            raise TypeError(f"a part of an export is messages, not {part.kind}")
        acknowledgements = [
            Acknowledgement(
                message.partition_id,
                self.options.group,
                lease_id,
                delivery.Verdict(message.transaction_id, delivery.DEAD, f"{failed.error}: {failed.message}"),
            )
            for message in part.messages
        ]
        answered = await self._store.acknowledge(acknowledgements)
        # Of a lease that is over nothing is set aside: its messages are delivered again, and refused again.
        dead = sum(one.answered.is_accepted for one in answered)
        self.counts["dead"] += dead
        self._buried[claim.number] += dead

    def hasten(self) -> None:
        self._released.hasten()

    def depth(self) -> int:
        return len(self._released)

    # leases

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self.options.renew_seconds)
            now = self._clock.monotonic()
            for number, (lease_id, renewed) in list(self._leases.items()):
                is_young = now - renewed < self.options.renew_after_seconds
                if is_young or number not in self._leases or number in self._lost:
                    continue
                try:
                    until_us = await self._store.extend(lease_id, LEASE_SECONDS)
                except ForebayError as error:
                    _log.warning("%s: %s", self.name, error, extra={"action": "export_renewal_failed"})
                    continue
                if number not in self._leases:
                    continue
                if until_us is not None:
                    self._leases[number] = (lease_id, now)
                    continue
                self._lose(number)
                if self._released.discard(number):
                    self._forget(number)

    def _is_lease_over(self, number: int) -> bool:
        """Whether it was renewed so long ago that the store has given it up: this process was frozen."""
        _, renewed = self._leases[number]
        return self._clock.monotonic() - renewed >= LEASE_SECONDS

    def _lose(self, number: int) -> None:
        if number not in self._lost:
            self._lost.add(number)
            self.counts["lease_lost"] += 1

    def _forget(self, number: int) -> None:
        self._leases.pop(number, None)
        self._buried.pop(number, None)
        self._lost.discard(number)

    def stop_claims(self) -> None:
        self._is_stopping = True
        self._stopped.set()

    async def close(self) -> None:
        self.stop_claims()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for claim in self._released.entries():
            await self.put_back(claim)


def _outgoing(message: Message) -> ExportMessage:
    return ExportMessage(
        message.queue,
        message.partition,
        message.seq,
        message.transaction_id,
        message.created_us,
        message.payload,
        message.is_binary,
        message.partition_id,
        message.headers,
    )


def idempotency_key(group: str, messages: list[ExportMessage]) -> str:
    """Made of the group, the queue, the partitions and their seqs: the same whenever the same messages are sent."""
    digest = hashlib.blake2b(group.encode(), digest_size=16)
    for (queue, partition), run in groupby(messages, key=lambda message: (message.queue, message.partition)):
        seqs = ",".join(str(message.seq) for message in run)
        digest.update(f"\0{queue}\0{partition}\0{seqs}".encode())
    return digest.hexdigest()
