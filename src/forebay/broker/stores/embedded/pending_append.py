"""The messages of one queue that a cycle is to store, and how they are cut into records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from forebay.broker.stores.embedded.unwritten_index import Span, spans_of
from forebay.model.push_run import PushRun

RECORD_BYTES_MAX = 16 << 20
"""What a queue gets in one cycle is cut into records of about this size."""
_MESSAGE_OVERHEAD_BYTES = 256


class PendingAppend:
    """Messages of one queue that are to be stored, in order."""

    def __init__(
        self,
        first_seq: int,
        taken_ids: dict[str, dict[str, int]],
        *,
        are_ids_new: bool = False,
        are_ids_indexed: bool = False,
    ) -> None:
        self.first_seq = first_seq
        self.taken_ids = taken_ids
        """By partition, ids that producers gave, with the seq of their message: those that were there before, and the
        new ones."""
        self.are_ids_new = are_ids_new
        """Whether the ids of all messages were given, and are known to be new: then they are not in `taken_ids`."""
        self.are_ids_indexed = are_ids_indexed
        """Whether they are in the index already, with the seqs that their messages will get."""
        self.partition_ids: list[int] = []
        self._runs: list[PushRun] = []

    @property
    def count(self) -> int:
        return len(self.partition_ids)

    @property
    def next_seq(self) -> int:
        return self.first_seq + self.count

    def add(self, run: PushRun, numbers: Mapping[str, int]) -> None:
        """`numbers` are those of the partitions of the run it was a part of, by name."""
        if len(numbers) == 1:
            [number] = numbers.values()
            self.partition_ids += [number] * len(run)
        else:
            self.partition_ids += [numbers[name] for name in run.partitions]
        self._runs.append(run)

    def transaction_ids(self) -> Iterable[str]:
        return chain.from_iterable([run.transaction_ids for run in self._runs])

    def given_ids(self, stop_seq: int, numbers: Mapping[str, int]) -> Iterable[tuple[int, str, int]]:
        """Partition, id and seq of the messages below `stop_seq` whose producers gave an id.

        `numbers` are those of partitions.
        """
        if self.are_ids_new:
            return zip(self.partition_ids, self.transaction_ids(), range(self.first_seq, stop_seq), strict=False)
        return [
            (numbers[partition], transaction_id, seq)
            for partition, seqs in self.taken_ids.items()
            for transaction_id, seq in seqs.items()
            if self.first_seq <= seq < stop_seq
        ]

    def records(self, messages_max: int) -> Iterator[tuple[slice, list[PushRun]]]:
        """What goes into each record of so many messages at the most, and its places among all messages."""
        count = self.count
        size = sum([run.size_bytes for run in self._runs]) + _MESSAGE_OVERHEAD_BYTES * count
        if count <= messages_max and size <= RECORD_BYTES_MAX:
            yield slice(0, count), self._runs
            return
        record: list[PushRun] = []
        start = stop = total = 0
        for run in self._runs:
            first = 0
            for place, payload_bytes in enumerate(run.payloads.sizes):
                size = payload_bytes + _MESSAGE_OVERHEAD_BYTES
                if stop > start and (total + size > RECORD_BYTES_MAX or stop - start >= messages_max):
                    if first < place:
                        record.append(run.at(range(first, place)))
                    yield slice(start, stop), record
                    record, start, first, total = [], stop, place, 0
                stop, total = stop + 1, total + size
            record.append(run.at(range(first, len(run))))
        yield slice(start, stop), record

    def spans(self, places: slice, runs: Sequence[PushRun]) -> list[Span]:
        """Of what goes into a record."""
        return spans_of(self.partition_ids[places], chain.from_iterable([run.payloads.sizes for run in runs]))
