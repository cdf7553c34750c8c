"""The way in: several requests, one transaction.

The queues are locked in the order of their numbers, then everything is decided here (seqs, positions, duplicates,
whether there is room), then written with one statement per table. Requests that share a transaction share nothing
else: one that is refused leaves no trace, and the others go on.

What to look up and what to write is decided here; the caller does it. `PushPlan.steps` is a generator that yields
statements, is sent their rows, and returns the last statements of its transaction (`carried_out`). `push_lookups` gives
groups of pushes a transaction of their own; `Push` takes the same steps in a transaction that has more to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

from forebay.broker.messages import Pushed
from forebay.broker.numbering import numbered
from forebay.broker.queue_rules import refused_for_room, refused_in_clear
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.arrays import Texts
from forebay.broker.stores.postgres.connections import Connection, Row, rows, send
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.push_statements import ChangedPartition, GrownQueue, NewRun
from forebay.broker.stores.postgres.queries import Statement, query
from forebay.errors import PayloadInClear, QueueFull
from forebay.model.push_run import PushRun, by_partition, message_count
from forebay.model.queue import QueueOptions, namespace_and_task_of, options_to_wire

RECEIPT = "postgres"
MAKE_QUEUES_MAX = 5
"""How often a push makes queues that another request deletes in the same moment."""
DELETED_AGAIN = "a queue is deleted again and again while messages are pushed to it"
PARTITIONS_KNOWN_MAX = 100_000
ITEMS_AT_ONCE_MAX = 500
"""Messages that are decided upon on the event loop: a few milliseconds."""
Outcome = Sequence[Pushed] | QueueFull | PayloadInClear
PartitionNumbers = dict[tuple[str, str], int]
"""Of queue and partition names, as they were found last. A queue may have been deleted and made again since."""


QueuePlaces = dict[str, tuple[str, str]]
"""Queues by name, with the namespace and the task that the push gives them, if it does."""


class MissingQueues(Exception):
    """The push names queues that do not exist yet: make them, then come again."""

    def __init__(self, queues: QueuePlaces) -> None:
        self.queues = queues


class Availability(NamedTuple):
    """What a commit made available, to be announced after it."""

    counts: dict[str, int]
    wanted_elsewhere: set[str]


class Decided(NamedTuple):
    """What becomes of the requests once `writes` are committed."""

    outcomes: list[Outcome]
    availability: Availability
    writes: list[Statement]


Steps = Generator[list[Statement], list[list[Row]], Decided]


@dataclass(slots=True)
class _Queue:
    queue_id: int
    name: str
    max_size: int
    is_encrypted: bool
    next_seq: int
    kept: int
    is_wanted_elsewhere: bool
    waiting: int | None = None
    added: int = 0
    added_bytes: int = 0


@dataclass(slots=True)
class _Partition:
    partition_id: int
    position: int
    queue: _Queue
    shown_id: str
    last_seq: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    """The producers' own ids that are known to be there, with their seqs."""


class PushPlan:
    """The requests of one transaction. `known` saves a look at the database where it is right, and is kept right."""

    def __init__(
        self, now_us: int | None, server_id: str, known: PartitionNumbers, *, looks_for_all: bool = False
    ) -> None:
        """`looks_for_all`: also minted ids are looked for, because an attempt at the same messages has failed."""
        self._looks_for_all = looks_for_all
        self._now_us = now_us
        self._server_id = server_id
        self._known = known
        self._queues: dict[str, _Queue] = {}
        self._guarded: list[_Queue] = []
        """Those that may refuse."""
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self.made: PartitionNumbers = {}
        """Partitions that are there once this is committed."""
        self._new: list[NewRun] = []
        self._time_us = 0

    def steps(self, requests: Sequence[Sequence[PushRun]]) -> Steps:
        requests = list(map(by_partition, requests))
        runs = [run for request in requests for run in request]
        own = runs if self._looks_for_all else [run for run in runs if not run.is_minted]
        keys = [(run.queue, name) for run in own for name in run.partitions]
        ids = [transaction_id for run in own for transaction_id in run.transaction_ids]
        guess = [self._known.get(key, 0) for key in keys]
        statements = [
            push_statements.lock_queues({run.queue for run in runs}, self._server_id),
            push_statements.find_partitions({(run.queue, run.partitions[0]) for run in runs}, self._now_us),
        ]
        if any(guess):
            statements.append(push_statements.find_duplicates(ids, guess))
        locked, found, *duplicates = yield statements
        self._note_queues(locked, runs)
        missing = self._note_partitions(found)
        truth = [self._known.get(key, 0) for key in keys]
        if any(truth) and truth != guess:
            duplicates = yield [push_statements.find_duplicates(ids, truth)]
        if missing:
            numbered_queues = [(self._queues[queue].queue_id, name) for queue, name in missing]
            [made] = yield [push_statements.make_partitions(numbered_queues)]
            self._note_made(made)
        for place, seq in cast("list[tuple[int, int]]", duplicates[0] if any(truth) else []):
            self._partitions[keys[place - 1]].ids[ids[place - 1]] = seq
        outcomes = yield from self._decide_all(requests)
        announced = {name: queue.added for name, queue in self._queues.items() if queue.added}
        wanted_elsewhere = {name for name in announced if self._queues[name].is_wanted_elsewhere}
        return Decided(outcomes, Availability(announced, wanted_elsewhere), [self._write()] if self._new else [])

    def _note_queues(self, locked: list[Row], runs: Sequence[PushRun]) -> None:
        for found in cast("list[tuple[Any, ...]]", locked):
            queue = _Queue(*found)
            self._queues[queue.name] = queue
        # In the namespace and task that the first run says.
        missing = {run.queue: (run.namespace, run.task) for run in reversed(runs) if run.queue not in self._queues}
        if missing:
            raise MissingQueues(missing)
        self._guarded = [queue for queue in self._queues.values() if queue.is_encrypted or queue.max_size]

    @property
    def free(self) -> set[str]:
        """Those of the queues that take everything."""
        return self._queues.keys() - {queue.name for queue in self._guarded}

    @property
    def guarded(self) -> set[str]:
        return {queue.name for queue in self._guarded}

    def _note_partitions(self, rows_found: list[Row]) -> list[tuple[str, str]]:
        """Returns those that do not exist yet."""
        if len(self._known) > PARTITIONS_KNOWN_MAX:
            self._known.clear()
        missing = []
        for queue, name, partition_id, position, time_us in cast("list[tuple[Any, ...]]", rows_found):
            self._time_us = time_us
            if partition_id is None:
                missing.append((queue, name))
                self._known.pop((queue, name), None)
            else:
                self._note_partition(self._queues[queue], name, partition_id, position)
                self._known[queue, name] = partition_id
        return missing

    def _note_partition(self, queue: _Queue, name: str, partition_id: int, position: int) -> None:
        shown_id = wire_id(queue.queue_id, partition_id)
        self._partitions[queue.name, name] = _Partition(partition_id, position, queue, shown_id)

    def _note_made(self, made: list[Row]) -> None:
        queues = {queue.queue_id: queue for queue in self._queues.values()}
        for queue_id, name, partition_id in cast("list[tuple[int, str, int]]", made):
            self._note_partition(queues[queue_id], name, partition_id, 0)
            self.made[queues[queue_id].name, name] = partition_id

    def _decide_all(
        self, requests: Sequence[Sequence[PushRun]]
    ) -> Generator[list[Statement], list[list[Row]], list[Outcome]]:
        outcomes: list[Outcome] = []
        for request in requests:
            outcome = yield from self._decide(request)
            outcomes.append(outcome)
        return outcomes

    def _decide(self, request: Sequence[PushRun]) -> Generator[list[Statement], list[list[Row]], Outcome]:
        for queue in self._guarded:
            own = chain.from_iterable(run.payloads for run in request if run.queue == queue.name)
            if queue.is_encrypted and (in_clear := refused_in_clear(queue.name, own)):
                return in_clear
        for queue in self._guarded:
            if queue.max_size and (refused := (yield from self._refused(queue, request))):
                return refused
        return [answer for run in request for answer in self._number(run)]

    def _refused(
        self, queue: _Queue, request: Sequence[PushRun]
    ) -> Generator[list[Statement], list[list[Row]], QueueFull | None]:
        fresh = len(
            {
                (run.partitions[0], transaction_id)
                for run in request
                if run.queue == queue.name
                for taken in (self._taken(run) or {},)
                for transaction_id in run.transaction_ids
                if transaction_id not in taken
            }
        )
        # What is kept is at least what waits, so most pushes need not count.
        if not fresh or queue.kept + queue.added + fresh <= queue.max_size:
            return None
        if queue.waiting is None:
            [counted] = yield [push_statements.count_waiting(queue.queue_id)]
            queue.waiting = cast("int", counted[0][0]) if counted else queue.kept
        return refused_for_room(queue.name, queue.max_size, queue.waiting + queue.added, fresh)

    def _taken(self, run: PushRun) -> dict[str, int] | None:
        """Ids that it cannot have; None where that need not be looked at."""
        is_new = run.is_minted and not self._looks_for_all
        return None if is_new else self._partitions[run.queue, run.partitions[0]].ids

    def _number(self, run: PushRun) -> list[Pushed]:
        name = run.partitions[0]
        partition = self._partitions[run.queue, name]
        queue, taken = partition.queue, self._taken(run)
        seq = queue.next_seq + queue.added
        new, answers = numbered(run, seq, None if taken is None else {name: taken}, {name: partition.shown_id}, RECEIPT)
        if new is not None:
            count = len(new)
            self._new.append(NewRun(queue.queue_id, seq, partition.partition_id, partition.position + 1, new))
            queue.added += count
            queue.added_bytes += new.size_bytes
            partition.position += count
            partition.last_seq = seq + count - 1
        return answers

    def _write(self) -> Statement:
        changed = [
            ChangedPartition(partition.partition_id, partition.last_seq, partition.position)
            for partition in self._partitions.values()
            if partition.last_seq
        ]
        grown = [
            GrownQueue(queue.queue_id, queue.next_seq + queue.added, queue.added_bytes)
            for queue in self._queues.values()
            if queue.added
        ]
        return push_statements.write(self._new, changed, grown, self._time_us)


class Push:
    """Pushes as a part of a transaction."""

    def __init__(self, connection: Connection, now_us: int | None, server_id: str) -> None:
        self._connection = connection
        self._plan = PushPlan(now_us, server_id, {})

    async def store(self, requests: Sequence[Sequence[PushRun]]) -> tuple[list[Outcome], Availability]:
        if not any(requests):
            return [[] for _ in requests], Availability({}, set())
        decided = await carried_out(self._connection, self._plan, requests)
        return decided.outcomes, decided.availability


async def carried_out(connection: Connection, plan: PushPlan, requests: Sequence[Sequence[PushRun]]) -> Decided:
    """Do the plan's steps within the transaction."""
    steps = plan.steps(requests)
    # What is decided grows with the messages: of many it is not for the event loop.
    is_large = sum(map(message_count, requests)) > ITEMS_AT_ONCE_MAX
    answers: list[list[Row]] | None = None
    while True:
        step = partial(_next, steps, answers)
        found = await asyncio.to_thread(step) if is_large else step()
        if isinstance(found, Decided):
            for statement in found.writes:
                await send(connection, *statement)
            return found
        answers = [await rows(connection, *statement) for statement in found]


def _next(steps: Steps, answers: list[list[Row]] | None) -> list[Statement] | Decided:
    """What a plan asks next, or what it has decided."""
    try:
        return next(steps) if answers is None else steps.send(answers)
    except StopIteration as end:
        return cast("Decided", end.value)


def make_queues(queues: QueuePlaces, now_us: int | None) -> Statement:
    """With default options."""
    own = {name: namespace_and_task_of(name) for name in queues}
    options = QueueOptions()
    values: dict[str, object] = {
        "names": Texts(queues),
        "namespaces": Texts([namespace or own[name][0] for name, (namespace, _) in queues.items()]),
        "tasks": Texts([task or own[name][1] for name, (_, task) in queues.items()]),
        "options": json.dumps(options_to_wire(options)),
        "priority": options.priority,
        "now_us": now_us,
    }
    return Statement(query("push_make_queues"), values)
