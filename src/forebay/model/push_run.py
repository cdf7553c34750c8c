"""Messages on their way in: the one shape that they have, from the request to the log and to the answer.

A request is a sequence of runs, in its order. A run holds neighbours that go to one queue, column by column: what is
done with them is done to all of them alike, so no object is made for each. A push of one message is one run of one. No
run is empty; two runs that follow each other may go to the same queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forebay.model.message import Payload
from forebay.model.text_block import TextBlock

Key = TypeVar("Key", bound=Hashable)


class Row(Struct, frozen=True, gc=False):
    """One message of a run, where it has to be looked at by itself."""

    partition: str
    payload: bytes
    transaction_id: str
    trace_id: str
    headers: bytes


class PushRun(Struct, gc=False):
    """A struct and no plain class, because a lone push costs one, and a struct is made three times as fast."""

    queue: str
    partitions: Sequence[str]
    payloads: TextBlock
    """What came over the wire, byte for byte."""
    transaction_ids: Sequence[str]
    """Never empty texts: minted where the messages were received, when the producer gave none."""
    is_minted: bool = False
    """Whether the ids were minted: then they cannot be duplicates, and no index is kept of them."""
    is_binary: bool = False
    trace_ids: Sequence[str] = ()
    """One each, or none at all."""
    headers: Sequence[bytes] = ()
    """One each, or none at all."""
    namespace: str = ""
    task: str = ""
    _id_block: TextBlock | None = None

    @classmethod
    def of(
        cls, queue: str, partition: str, payloads: Sequence[Payload], ids: Sequence[str], *, is_minted: bool = False
    ) -> PushRun:
        """JSON payloads without trace, headers, namespace or task."""
        return cls(queue, [partition] * len(ids), TextBlock.of(payloads), ids, is_minted)

    def __len__(self) -> int:
        return len(self.transaction_ids)

    @property
    def partition(self) -> str | None:
        """The one of all messages; None where there are several."""
        names = self.partitions
        return names[0] if names.count(names[0]) == len(names) else None

    def spans(self) -> list[tuple[str, int, int]]:
        """Neighbours that go to one partition: which, how many, and the bytes of their payloads."""
        name, sizes = self.partition, self.payloads.sizes
        if name is not None:
            return [(name, len(sizes), self.size_bytes)]
        return [(own, len(sizes[places]), sum(sizes[places])) for own, places in neighbours(self.partitions)]

    @property
    def size_bytes(self) -> int:
        """Of all payloads together."""
        return len(self.payloads.data)

    def id_block(self) -> TextBlock:
        """The ids as they are written; made once."""
        if self._id_block is None:
            self._id_block = TextBlock.of_texts(self.transaction_ids)
        return self._id_block

    def trace_column(self) -> Sequence[str]:
        """One each; empty where there is none."""
        return self.trace_ids or [""] * len(self.transaction_ids)

    def header_column(self) -> Sequence[bytes]:
        """One each; empty where there are none."""
        return self.headers or [b""] * len(self.transaction_ids)

    def rows(self) -> Iterator[Row]:
        return map(Row, self.partitions, self.payloads, self.transaction_ids, self.trace_column(), self.header_column())

    def at(self, places: Sequence[int]) -> PushRun:
        """The messages at these places."""
        if len(places) == len(self):
            return self
        payloads, ids, traces, headers = self.payloads.values(), self.transaction_ids, self.trace_ids, self.headers
        return replace(
            self,
            partitions=[self.partitions[place] for place in places],
            payloads=TextBlock.of([payloads[place] for place in places]),
            transaction_ids=[ids[place] for place in places],
            trace_ids=traces and [traces[place] for place in places],
            headers=headers and [headers[place] for place in places],
            _id_block=None,
        )


def run_of_one(
    queue: str,
    partition: str,
    payload: bytes,
    transaction_id: str,
    is_minted: bool = False,
    trace_id: str = "",
    headers: bytes = b"",
    is_binary: bool = False,
    namespace: str = "",
    task: str = "",
) -> PushRun:
    """A message that comes alone."""
    return PushRun(
        queue,
        (partition,),
        TextBlock(payload, (len(payload),)),
        (transaction_id,),
        is_minted,
        is_binary,
        (trace_id,) if trace_id else (),
        (headers,) if headers else (),
        namespace,
        task,
    )


def neighbours(keys: Iterable[Key]) -> Iterator[tuple[Key, slice]]:
    """Values that stand beside others like them: each with the places where it stands."""
    start = 0
    for key, together in groupby(keys):
        stop = start + len(list(together))
        yield key, slice(start, stop)
        start = stop


def by_partition(runs: Sequence[PushRun]) -> list[PushRun]:
    """The same messages in runs that go to one partition each."""
    found: list[PushRun] = []
    for run in runs:
        if run.partition is not None:
            found.append(run)
            continue
        payloads, ids = run.payloads.values(), list(run.transaction_ids)
        found += [
            replace(
                run,
                partitions=run.partitions[places],
                payloads=TextBlock.of(payloads[places]),
                transaction_ids=ids[places],
                trace_ids=run.trace_ids[places],
                headers=run.headers[places],
                _id_block=None,
            )
            for _, places in neighbours(run.partitions)
        ]
    return found


def places_of(runs: Iterable[PushRun]) -> set[tuple[str, str]]:
    """The partitions that they go to, each with its queue."""
    return {(run.queue, name) for run in runs for name in run.partitions}


def message_count(runs: Sequence[PushRun]) -> int:
    return len(runs[0].transaction_ids) if len(runs) == 1 else sum([len(run.transaction_ids) for run in runs])
