"""Messages as Arrow columns: ranges out; stages and their commits in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from forebay.broker.arrow import outgoing
from forebay.broker.arrow.staged_rows import check_sealed, cut, items_of, size_of
from forebay.broker.bulk import CommitOutcome, QueueBounds, RangeRequest, Staged, StageFigures, StageName
from forebay.broker.messages import PushItem
from forebay.clock import Clock
from forebay.errors import StageUnknown
from forebay.model.message import SeqRange
from forebay.testing.memory_store.contents import SECOND_US, StoredQueue
from forebay.testing.memory_store.pushing import Pushing


@dataclass(frozen=True, slots=True)
class _Stage:
    queue: str
    name: StageName
    batches: Sequence[pa.RecordBatch]
    staged: Staged
    created_us: int


class ArrowStages(Pushing):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._stages: dict[str, _Stage] = {}
        self._commits: dict[tuple[str, str], tuple[CommitOutcome, int]] = {}
        self._expired = 0

    async def bounds(self, queue: str, time_us: int | None = None) -> QueueBounds:
        found = self._existing(queue)
        messages = found.messages()
        later = (message.seq for message in messages if time_us is not None and message.created_us >= time_us)
        return QueueBounds(
            messages[0].seq if messages else found.next_seq,
            found.next_seq,
            sum(len(message.payload) for message in messages),
            None if time_us is None else next(later, found.next_seq),
        )

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        bounds = await self.bounds(wanted.queue)
        queue = self._existing(wanted.queue)
        first = outgoing.checked_start(wanted, bounds.first_seq, queue.removed_seq)
        last = bounds.next_seq - 1 if wanted.to_seq is None else wanted.to_seq
        return _read(queue, first, last, wanted)

    async def stage(self, queue: str, stage_id: str, name: StageName, batches: Sequence[pa.RecordBatch]) -> Staged:
        found = self._queues.get(queue)
        if found and found.info.options.encryption_enabled:
            check_sealed(queue, batches)
        staged = Staged(stage_id, *size_of(batches))
        self._stages[stage_id] = _Stage(queue, name, list(batches), staged, self._clock.now_us())
        return staged

    async def commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        known = self._commits.get((producer, epoch))
        if known is not None:
            return known[0]._replace(is_repeated=True)
        chosen = {each: self._stages.get(each) for each in stage_ids}
        unknown = [each for each, stage in chosen.items() if stage is None or stage.name[:2] != (producer, epoch)]
        if unknown:
            raise StageUnknown(unknown, producer, epoch)
        items: list[PushItem] = []
        for stage in chosen.values():
            if stage is not None:
                items += [item for batch in stage.batches for item in items_of(stage.queue, batch)]
        self._check_room(items)
        pushed = [self._push(item) for item in items]
        self._tell(pushed, items)
        seqs: dict[str, list[int]] = {}
        for item, one in zip(items, pushed, strict=True):
            if one.status == "queued":
                seqs.setdefault(item.queue, []).append(one.seq)
        total = sum(map(len, seqs.values()))
        ranges = {queue: SeqRange(found[0], found[-1]) for queue, found in seqs.items()}
        outcome = CommitOutcome(False, total, len(items) - total, ranges)
        self._commits[producer, epoch] = outcome, self._clock.now_us()
        self._forget(producer, epoch)
        return outcome

    async def abort_stages(self, producer: str, epoch: str) -> int:
        return self._forget(producer, epoch)

    def _forget(self, producer: str, epoch: str) -> int:
        gone = [each for each, stage in self._stages.items() if stage.name[:2] == (producer, epoch)]
        for stage_id in gone:
            del self._stages[stage_id]
        return len(gone)

    async def stage_figures(self) -> StageFigures:
        size = sum(stage.staged.size_bytes for stage in self._stages.values())
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
    batch = outgoing.narrowed(outgoing.of_messages(chosen), wanted)
    for part in outgoing.limited(outgoing.put_together(cut([batch], outgoing.BATCH_BYTES)), wanted.bytes_max):
        yield part
