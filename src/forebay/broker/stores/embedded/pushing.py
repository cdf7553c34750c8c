"""The way in: the pushes of a cycle become one record per queue, a transaction one tagged record per queue.

The store's thread is the only one that appends to a queue's log, so the seq of every message is known before its record
is written: the log's next seq, plus its place. If the append fails, so do the requests that were given those seqs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from forebay.broker.messages import QUEUED, Pushed
from forebay.broker.numbering import by_run, numbered
from forebay.broker.queue_rules import refused_for_room, refused_in_clear
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.given_ids import Claim
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.pending_append import PendingAppend
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.unwritten_index import shares_of
from forebay.broker.stores.embedded.waiting_count import StillCounting, WaitingCount
from forebay.clock import Clock
from forebay.commitlog.block import NO_TAG
from forebay.commitlog.runs import RunBatch
from forebay.errors import AppendFailed, PayloadInClear, QueueFull, StoreUnavailable, Transient
from forebay.model.push_run import PushRun


class DuplicateInTransaction(Exception):
    """A push whose id is taken: the transaction leaves nothing behind."""


class PushBroken(Exception):
    """These requests, all of one queue, have raised what is not expected: a bug, or trouble with the disk."""

    def __init__(self, requests: Sequence[PendingPush], cause: Exception, *, is_nothing_stored: bool) -> None:
        super().__init__(cause)
        self.requests = requests
        self.cause = cause
        self.is_nothing_stored = is_nothing_stored
        """Whether the queue's log is as it was: then they can be tried again without being stored twice."""


@dataclass(slots=True, eq=False)
class PendingPush:
    """One push as it came, and what came of it."""

    runs: Sequence[PushRun]
    answers: Sequence[Pushed] = ()
    error: Exception | None = None
    is_stored: bool = False
    """Whether its messages are in the log, whatever becomes of the database's transaction."""
    is_alone: bool = False
    """Whether it is stored by itself, because one of those that came with it breaks."""

    @property
    def queue(self) -> str:
        return self.runs[0].queue


class Pusher:
    def __init__(
        self,
        queues: Queues,
        index: MessageIndex,
        clock: Clock,
        database: Database,
        limits: EmbeddedLimits,
    ) -> None:
        self._queues = queues
        self._index = index
        self._clock = clock
        self._database = database
        self._limits = limits

    def push(self, requests: Sequence[PendingPush]) -> Counter[str]:
        """Store requests of one queue each; what failed stands in them. Returns how many messages each queue got."""
        stored: Counter[str] = Counter()
        together: dict[tuple[str, PendingPush | None], list[PendingPush]] = {}
        for request in requests:
            together.setdefault((request.queue, request if request.is_alone else None), []).append(request)
        for (name, _), same in together.items():
            before = self._next_seq(name)
            try:
                stored[name] += self._push_to(same)
            except Exception as error:
                raise PushBroken(same, error, is_nothing_stored=self._next_seq(name) == before) from error
        return stored

    def _next_seq(self, name: str) -> int:
        queue = self._queues.by_name.get(name)
        return queue.log.next_seq if queue is not None else 1

    def _push_to(self, requests: Sequence[PendingPush]) -> int:
        """Store requests of one queue as far as possible; returns how many messages it got."""
        try:
            queue = self._queues.made_in_turn(requests[0].runs[0])
        except Transient as refused:
            for request in requests:
                request.error = refused
            return 0
        runs = [run for request in requests for run in request.runs]
        arrivals = self._all_new(queue, runs) or self._with_lookups(queue, runs)
        for request in requests:
            try:
                self._check_room(queue, arrivals, request.runs)
                self._check_sealed(queue, request.runs)
                request.answers = self._accept(queue, request.runs, arrivals)
            except (QueueFull, StillCounting, PayloadInClear) as refused:
                request.error = refused
        try:
            self._store(queue, arrivals, NO_TAG)
        except AppendFailed as failed:
            _refuse_unstored(requests, queue.log.next_seq, failed)
        for request in requests:
            request.is_stored = request.error is None
        return min(arrivals.count, queue.log.next_seq - arrivals.first_seq)

    def push_tagged(self, runs: Sequence[PushRun], tag: bytes) -> tuple[list[Pushed], Counter[str]]:
        """Store messages of any queues; they count only if the tag is committed with the database's transaction.

        Returns the answers, and how many messages each queue got.
        """
        by_queue: dict[str, list[int]] = {}
        for place, run in enumerate(runs):
            by_queue.setdefault(run.queue, []).append(place)
        all_arrivals: list[tuple[OpenQueue, PendingAppend]] = []
        answers: dict[int, list[Pushed]] = {}
        for name, places in by_queue.items():
            own = [runs[place] for place in places]
            queue = self._queues.made(name, own[0].namespace, own[0].task)
            arrivals = self._with_lookups(queue, own)
            self._check_room(queue, arrivals, own, is_urgent=True)
            self._check_sealed(queue, own)
            answers.update(zip(places, by_run(own, self._accept(queue, own, arrivals)), strict=True))
            all_arrivals.append((queue, arrivals))
        for queue, arrivals in all_arrivals:
            self._store(queue, arrivals, tag)
        last_seqs = {queue.queue_id: queue.log.next_seq - 1 for queue, arrivals in all_arrivals if arrivals.count}
        self._index.tags.add(tag, last_seqs)
        stored = Counter({queue.info.name: arrivals.count for queue, arrivals in all_arrivals})
        return [answer for place in range(len(runs)) for answer in answers[place]], stored

    def refuse_duplicates(self, runs: Sequence[PushRun]) -> None:
        """Raise for an id that its partition has already, or that comes twice."""
        seen: set[tuple[str, str, str]] = set()
        for run in runs:
            queue = self._queues.by_name.get(run.queue)
            stored = self._with_lookups(queue, [run]).taken_ids if queue else {}
            for partition, transaction_id in zip(run.partitions, run.transaction_ids, strict=True):
                key = run.queue, partition, transaction_id
                if not run.is_minted and (key in seen or transaction_id in stored.get(partition, ())):
                    raise DuplicateInTransaction(f"duplicate transactionId {transaction_id}")
                seen.add(key)

    def _with_lookups(self, queue: OpenQueue, runs: Iterable[PushRun]) -> PendingAppend:
        """Where messages of the queue go next, and which of the producers' ids their partitions have already."""
        wanted: dict[int, set[str]] = {}
        names: dict[int, str] = {}
        for run in runs:
            if run.is_minted:
                continue
            for partition, transaction_id in zip(run.partitions, run.transaction_ids, strict=True):
                if number := queue.partitions.get(partition):
                    names[number] = partition
                    wanted.setdefault(number, set()).add(transaction_id)
        taken: dict[str, dict[str, int]] = defaultdict(dict)
        for (number, transaction_id), seq in self._index.ids.seqs(wanted).items():
            taken[names[number]][transaction_id] = seq
        return PendingAppend(queue.log.next_seq, taken)

    def _all_new(self, queue: OpenQueue, runs: Sequence[PushRun]) -> PendingAppend | None:
        """For messages whose ids were all given and are all new, as most are: one look for all of them."""
        options = queue.info.options
        if options.max_size or options.encryption_enabled:
            return None  # it may refuse some, and those must leave nothing behind
        if any([run.is_minted for run in runs]):  # noqa: C419 - faster than to stop early
            return None
        names: list[str] = []
        ids: list[str] = []
        for run in runs:
            names += run.partitions
            ids += run.transaction_ids
        numbers = {name: self._queues.partition_id(queue, name) for name in set(names)}
        first_seq = queue.log.next_seq
        claim = self._index.ids.claim(first_seq, [numbers[name] for name in names], ids)
        if claim is Claim.REFUSED:
            return None
        return PendingAppend(first_seq, {}, are_ids_new=True, are_ids_indexed=claim is Claim.INDEXED)

    def _check_room(
        self, queue: OpenQueue, arrivals: PendingAppend, runs: Sequence[PushRun], *, is_urgent: bool = False
    ) -> None:
        """Duplicates need no room."""
        limit = queue.info.options.max_size
        if not limit:
            return
        new = {
            (partition, transaction_id)
            for run in runs
            for partition, transaction_id in zip(run.partitions, run.transaction_ids, strict=True)
            if run.is_minted or transaction_id not in arrivals.taken_ids.get(partition, ())
        }
        if new:
            waiting = self.waiting(queue, is_urgent=is_urgent) + arrivals.count
            if refused := refused_for_room(queue.info.name, limit, waiting, len(new)):
                raise refused

    def waiting(self, queue: OpenQueue, *, is_urgent: bool = False) -> int:
        """Messages that wait for the group that is furthest behind.

        Raises `StillCounting` until that is known, unless it is urgent: then all of it is counted now.
        """
        if queue.waiting is None:
            queue.waiting = WaitingCount(self._limits.counted_places_max)
        group_ids = [group.group_id for group in queue.groups.values()]
        while not queue.waiting.is_whole:
            self._index.settle()
            queue.waiting.count_some(self._database, queue.log, queue.queue_id, group_ids)
            if not is_urgent:
                break
        return queue.waiting.of(group_ids)

    def be_counted(self, names: Iterable[str]) -> None:
        """For what must not stop half-way: raises `StillCounting` until it is known what waits in limited queues."""
        for name in dict.fromkeys(names):
            queue = self._queues.by_name.get(name)
            if queue is not None and queue.info.options.max_size:
                self.waiting(queue)

    def _check_sealed(self, queue: OpenQueue, runs: Sequence[PushRun]) -> None:
        if queue.info.options.encryption_enabled and (
            refused := refused_in_clear(queue.info.name, chain.from_iterable(run.payloads for run in runs))
        ):
            raise refused

    def _accept(self, queue: OpenQueue, runs: Sequence[PushRun], arrivals: PendingAppend) -> list[Pushed]:
        answers: list[Pushed] = []
        for run in runs:
            numbers = {name: self._queues.partition_id(queue, name) for name in set(run.partitions)}
            partition_ids = {name: queue.wire_id(number) for name, number in numbers.items()}
            taken = None if run.is_minted or arrivals.are_ids_new else arrivals.taken_ids
            new, own = numbered(run, arrivals.next_seq, taken, partition_ids, "log")
            if new is not None:
                arrivals.add(new, numbers)
            answers += own
        return answers

    def _store(self, queue: OpenQueue, arrivals: PendingAppend, tag: bytes) -> None:
        if not arrivals.count:
            return
        try:
            self._append(queue, arrivals, tag)
        finally:
            self._index_ids(queue, arrivals, is_tagged=tag != NO_TAG)

    def _index_ids(self, queue: OpenQueue, arrivals: PendingAppend, *, is_tagged: bool) -> None:
        """Those of the messages that are in the log: of several records, one may have been written and the next not."""
        index, stop_seq = self._index.ids, queue.log.next_seq
        if not arrivals.are_ids_indexed:
            (index.add if is_tagged else index.note)(arrivals.given_ids(stop_seq, queue.partitions))
        elif arrivals.next_seq > stop_seq:
            index.give_back(stop_seq, arrivals.partition_ids, arrivals.transaction_ids())

    def _append(self, queue: OpenQueue, arrivals: PendingAppend, tag: bytes) -> None:
        now_us = self._clock.now_us()
        for places, runs in arrivals.records(self._limits.record_messages_max):
            place = queue.log.append_columns(RunBatch(runs), now_us, tag=tag)
            shares = shares_of(place.first_seq, arrivals.spans(places, runs))
            # A transaction's record counts only together with its tag, so it goes into the index together with that.
            index = self._index.note if tag == NO_TAG else self._index.add
            index(queue, place.first_seq, place.position, shares, now_us)


def _refuse_unstored(requests: Sequence[PendingPush], next_seq: int, failed: AppendFailed) -> None:
    """Messages below `next_seq` are in the log: of several records, one may have been written and the next not."""
    for request in requests:
        last_seqs = [answer.seq + answer.count - 1 for answer in request.answers]
        if request.error is None and max(last_seqs) >= next_seq:
            new = [answer.seq for answer in request.answers if answer.status == QUEUED]
            is_partly_stored = bool(new) and min(new) < next_seq
            request.error = (
                StoreUnavailable(f"a part of the messages is stored: {failed.message}", is_outcome_unknown=True)
                if is_partly_stored
                else failed
            )
