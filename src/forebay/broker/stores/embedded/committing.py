"""Commits of stages: their rows become messages of their queues, all of them or none.

A commit is a transaction of the store (see the essay): its records carry one tag, and the tag is committed in SQLite
together with the index rows and the rows that remember it, one per queue. Rows go from the stages' files into the logs
without becoming Python objects, except where producers gave ids, which have to be looked up one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from forebay.broker.arrow.commits import Committed, Decision, decide, request_of
from forebay.broker.arrow.staged_rows import check_sealed
from forebay.broker.bulk import CommitOutcome, Content, StagesOf
from forebay.broker.queue_rules import refused_for_room
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.staging import Stages
from forebay.clock import Clock
from forebay.commitlog.columns import ColumnBatch
from forebay.model.message import TRANSACTION_ID_IS_MINTED, SeqRange


@dataclass(slots=True)
class _Intake:
    """What one queue is to get."""

    queue: OpenQueue
    batches: list[pa.RecordBatch] = field(default_factory=list)
    ids: list[tuple[int, str, int]] = field(default_factory=list)
    """Ids that producers gave: partition, id, seq."""
    taken: set[tuple[int, str]] = field(default_factory=set)
    """Those ids, and the ones that their partitions had before: partition, id."""
    duplicates: int = 0

    @property
    def messages(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


class StageCommitter:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        index: MessageIndex,
        stages: Stages,
        clock: Clock,
        waiting: Callable[[OpenQueue], int],
    ) -> None:
        self._database = database
        self._queues = queues
        self._index = index
        self._stages = stages
        self._clock = clock
        self._waiting = waiting

    def _committed(self, wanted: StagesOf) -> dict[str, Committed]:
        """What is committed of the write, by queue."""
        rows = self._database.all(
            query("commits_find"),
            (wanted.producer, wanted.epoch, wanted.write),
        )
        return {row[0]: Committed(row[0], None if row[1] is None else Content(*row[1:4]), *row[4:]) for row in rows}

    def decide(self, wanted: StagesOf, stage_ids: Sequence[str]) -> Decision:
        """What of the request is new."""
        return decide(wanted, stage_ids, self._stages.staged(wanted), self._committed(wanted))

    def commit(self, wanted: StagesOf, stage_ids: Sequence[str], decision: Decision, tag: bytes) -> CommitOutcome:
        """Inside a savepoint: whatever is raised, nothing of it counts."""
        queues = self._stages.staged(wanted)
        intakes: dict[str, _Intake] = {}
        for stage_id in dict.fromkeys(stage_ids):
            name = queues[stage_id][0]
            if name not in decision.new:
                continue
            if name not in intakes:
                intakes[name] = _Intake(self._queues.made(name, "", ""))
            for batch in self._stages.read(stage_id):
                self._take(intakes[name], batch)
        for intake in intakes.values():
            self._check_room(intake)
        now_us = self._clock.now_us()
        ranges = {name: self._store(intake, tag, now_us) for name, intake in intakes.items() if intake.messages}
        self._index.tags.add(tag, {intakes[name].queue.queue_id: last for name, (_, last) in ranges.items()})
        request, done = request_of(stage_ids), []
        for name, content in decision.new.items():
            duplicates = intakes[name].duplicates if name in intakes else 0
            first, last = ranges.get(name, (0, -1))
            done.append(Committed(name, content, request, last - first + 1, duplicates, first))
        self._note(wanted, done, now_us)
        return decision.outcome(done)

    def _note(self, wanted: StagesOf, done: Sequence[Committed], now_us: int) -> None:
        """Remember what was committed, and forget the stages of it, also those that no commit named."""
        for queue, content, *rest in done:
            self._database.do(
                query("commit_note"),
                (wanted.producer, wanted.epoch, wanted.write, queue, *(content or ()), *rest, now_us),
            )
            self._stages.forget(wanted._replace(queue=queue))

    def _take(self, intake: _Intake, batch: pa.RecordBatch) -> None:
        check_sealed(intake.queue.info, [batch])
        is_minted = pc.not_equal(pc.bit_wise_and(batch.column("flags"), TRANSACTION_ID_IS_MINTED), 0)
        if not pc.all(is_minted).as_py():
            batch = self._without_duplicates(intake, batch, is_minted.to_pylist())
        if batch.num_rows:
            intake.batches.append(batch)

    def _without_duplicates(self, intake: _Intake, batch: pa.RecordBatch, minted: list[bool]) -> pa.RecordBatch:
        """Leave out rows whose id their partition holds already, as a push would; note the ids of the others."""
        names, ids = batch.column("partition").to_pylist(), batch.column("transaction_id").to_pylist()
        numbers = {name: self._queues.partition_id(intake.queue, name) for name in set(names)}
        wanted: dict[int, set[str]] = {}
        for name, transaction_id, is_minted in zip(names, ids, minted, strict=True):
            if not is_minted:
                wanted.setdefault(numbers[name], set()).add(transaction_id)
        taken = intake.taken
        taken.update(self._index.ids.seqs(wanted))
        seq = intake.queue.log.next_seq + intake.messages
        kept = []
        for name, transaction_id, is_minted in zip(names, ids, minted, strict=True):
            key = numbers[name], transaction_id
            is_new = is_minted or key not in taken
            if is_new and not is_minted:
                taken.add(key)
                intake.ids.append((*key, seq))
            seq += is_new
            kept.append(is_new)
        intake.duplicates += kept.count(False)
        return batch if all(kept) else batch.filter(pa.array(kept))

    def _check_room(self, intake: _Intake) -> None:
        limit, new = intake.queue.info.options.max_size, intake.messages
        if not (limit and new):
            return
        if refused := refused_for_room(intake.queue.info.name, limit, self._waiting(intake.queue), new):
            raise refused

    def _store(self, intake: _Intake, tag: bytes, now_us: int) -> SeqRange:
        first_seq = intake.queue.log.next_seq
        for batch in intake.batches:
            place = intake.queue.log.append_columns(ColumnBatch(batch), now_us, tag=tag)
            shares = self._shares(intake.queue, batch, place.first_seq)
            self._index.add(intake.queue, place.first_seq, place.position, shares, now_us)
        self._index.ids.add(intake.ids)
        return SeqRange(first_seq, intake.queue.log.next_seq - 1)

    def _shares(self, queue: OpenQueue, batch: pa.RecordBatch, first_seq: int) -> dict[int, list[int]]:
        """For each partition its first and last seq in the record, how many messages it has there, and their bytes."""
        names, sizes = batch.column("partition"), pc.binary_length(batch.column("payload"))
        bounds = pc.min_max(names)
        if bounds["min"] == bounds["max"]:
            number = self._queues.partition_id(queue, bounds["min"].as_py())
            last_seq = first_seq + batch.num_rows - 1
            return {number: [first_seq, last_seq, batch.num_rows, pc.sum(sizes).as_py()]}
        places = pa.array(range(batch.num_rows), pa.int64())
        table = pa.table([names, places, sizes], names=["name", "place", "size"])
        found = table.group_by("name", use_threads=False).aggregate(
            [("place", "min"), ("place", "max"), ("place", "count"), ("size", "sum")]
        )
        return {
            self._queues.partition_id(queue, row["name"]): [
                first_seq + row["place_min"],
                first_seq + row["place_max"],
                row["place_count"],
                row["size_sum"],
            ]
            for row in found.to_pylist()
        }


def seqs_by_queue(outcome: CommitOutcome, decision: Decision) -> Counter[str]:
    """How many messages each queue got now."""
    return Counter(
        {queue: last - first + 1 for queue, (first, last) in outcome.queues.items() if queue in decision.new}
    )
