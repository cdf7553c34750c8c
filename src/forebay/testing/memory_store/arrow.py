"""Messages as Arrow columns: ranges out; stages and their commits in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from forebay.broker.arrow import outgoing
from forebay.broker.arrow.commits import Committed, decide, request_of
from forebay.broker.arrow.staged_rows import check_sealed, content_of, cut, runs_of
from forebay.broker.bulk import (
    CommitOutcome,
    Content,
    QueueBounds,
    RangeRequest,
    Staged,
    StageFigures,
    StageName,
    StagesOf,
    identity_of,
)
from forebay.broker.messages import Message
from forebay.broker.numbering import by_run
from forebay.clock import SECOND_US, Clock
from forebay.testing.memory_store.contents import StoredQueue
from forebay.testing.memory_store.pushing import Pushing


@dataclass(frozen=True, slots=True)
class _Stage:
    queue: str
    name: StageName
    batches: Sequence[pa.RecordBatch]
    staged: Staged
    created_us: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name.producer, self.name.epoch, self.name.write


class ArrowStages(Pushing):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._stages: dict[str, _Stage] = {}
        self._commits: dict[tuple[str, str, str, str], tuple[Committed, int]] = {}
        self._expired = 0

    async def bounds(self, queue: str, time_us: int | None = None, partitions: Sequence[str] = ()) -> QueueBounds:
        found = self._existing(queue)
        messages = found.messages()
        later = (message.seq for message in messages if time_us is not None and message.created_us >= time_us)
        return QueueBounds(
            messages[0].seq if messages else found.next_seq,
            found.next_seq,
            sum(len(message.payload) for message in messages),
            None if time_us is None else next(later, found.next_seq),
            identity_of(found.number, found.info.created_us),
            found.removed_seq(partitions),
        )

    async def hold(self, queue: str, reader: str, seq: int, seconds: float) -> bool:
        found, now_us = self._existing(queue), self._clock.now_us()
        was_held = found.holds.pop(reader, (0, 0))[1] > now_us
        if seconds > 0:
            found.holds[reader] = seq, now_us + round(seconds * SECOND_US)
        return was_held

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        bounds = await self.bounds(wanted.queue, partitions=wanted.partitions)
        queue = self._existing(wanted.queue)
        outgoing.check_identity(wanted, bounds.identity)
        first = outgoing.checked_start(wanted, bounds.first_seq, bounds.removed_seq)
        outgoing.check_complete(wanted, bounds.removed_seq)
        last = bounds.next_seq - 1 if wanted.to_seq is None else wanted.to_seq
        return _read(queue, first, last, wanted)

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        found = self._queues.get(queue)
        check_sealed(found.info if found else None, batches)
        staged = Staged(stage_id, content or content_of(batches))
        self._stages[stage_id] = _Stage(queue, name, list(batches), staged, self._clock.now_us())
        return staged

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        return self._commit_stages(wanted, stage_ids)

    def _commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        key = wanted[:3]
        staged = {n: (s.queue, s.staged.content) for n, s in self._stages.items() if s.key == key}
        committed = {queue: one for (*of, queue), (one, _) in self._commits.items() if tuple(of) == key}
        decision = decide(wanted, stage_ids, staged, committed)
        stages = [self._stages[each] for each in dict.fromkeys(stage_ids) if each in staged]
        runs = [
            run
            for stage in stages
            if stage.queue in decision.new
            for batch in stage.batches
            for run in runs_of(stage.queue, batch)
        ]
        self._check_room(runs)
        pushed = self._push(runs)
        self._tell(pushed, runs)
        done = []
        for queue, content in decision.new.items():
            answers = zip(runs, by_run(runs, pushed), strict=True)
            of_queue = [one for run, own in answers if run.queue == queue for one in own]
            seqs = [one.seq for one in of_queue if one.status == "queued"]
            first_seq = seqs[0] if seqs else 0
            one = Committed(queue, content, request_of(stage_ids), len(seqs), len(of_queue) - len(seqs), first_seq)
            self._commits[*key, queue] = one, self._clock.now_us()
            done.append(one)
        for queue in decision.new:
            self._abort_stages(wanted._replace(queue=queue), all_writes=False)
        return decision.outcome(done)

    async def abort_stages(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        return self._abort_stages(wanted, all_writes=all_writes)

    def _abort_stages(self, wanted: StagesOf, *, all_writes: bool) -> int:
        gone = [
            each
            for each, stage in self._stages.items()
            if (stage.key == wanted[:3] or (all_writes and stage.key[:2] == wanted[:2]))
            and wanted.queue in (None, stage.queue)
        ]
        for stage_id in gone:
            del self._stages[stage_id]
        return len(gone)

    async def stage_figures(self) -> StageFigures:
        size = sum(stage.staged.content.size_bytes for stage in self._stages.values())
        return StageFigures(len(self._stages), size, self._expired)

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        now_us = self._clock.now_us()
        old = [n for n, stage in self._stages.items() if stage.created_us < now_us - stage_seconds * SECOND_US]
        for stage_id in old:
            del self._stages[stage_id]
        self._expired += len(old)
        kept_from_us = now_us - commit_seconds * SECOND_US
        self._commits = {key: found for key, found in self._commits.items() if found[1] >= kept_from_us}
        return len(old)


async def _read(queue: StoredQueue, first: int, last: int, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
    chosen = [message for message in queue.messages() if first <= message.seq <= last]
    batch = outgoing.narrowed(of_messages(chosen), wanted)
    for part in outgoing.limited(outgoing.put_together(cut([batch], outgoing.BATCH_BYTES)), wanted.bytes_max):
        yield part


def of_messages(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages that are objects already."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.seq for message in messages], pa.int64()),
            pa.array([message.partition for message in messages], pa.string()),
            pa.array([message.transaction_id for message in messages], pa.string()),
            pa.array([message.trace_id or None for message in messages], pa.string()),
            pa.array([message.headers.decode() or None for message in messages], pa.string()),
            pa.array([message.created_us for message in messages], pa.int64()).cast(outgoing.WIRE_SCHEMA.field(5).type),
            pa.array([message.payload for message in messages], pa.binary()),
        ],
        schema=outgoing.WIRE_SCHEMA,
    )
