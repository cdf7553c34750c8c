"""Messages of one partition on their way in, column by column: as most requests with many messages bring them.

What is done with such messages is done to all of them alike, so no object is made for each. Single messages are taken
from here too: they are made when they are read.

Ask `type(items) is PushRun`: `isinstance` takes ten times as long for what is none, because a `Sequence` is abstract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import final, overload

from forebay.broker.messages import Pushed, PushItem
from forebay.model.message import Payload
from forebay.model.text_block import TextBlock

QUEUED = "queued"


@final
class PushRun(Sequence[PushItem]):
    """JSON payloads without trace, headers, namespace or task; the ids were all given, or all minted."""

    __slots__ = ("_id_block", "is_minted", "partition", "payloads", "queue", "transaction_ids")

    def __init__(
        self,
        queue: str,
        partition: str,
        payloads: Sequence[Payload],
        transaction_ids: Sequence[str],
        *,
        is_minted: bool,
    ) -> None:
        self.queue = queue
        self.partition = partition
        self.payloads = TextBlock.of(payloads)
        self.transaction_ids = transaction_ids
        self.is_minted = is_minted
        self._id_block: TextBlock | None = None

    def id_block(self) -> TextBlock:
        """The ids as they are written; made once."""
        if self._id_block is None:
            self._id_block = TextBlock.of_texts(self.transaction_ids)
        return self._id_block

    def __len__(self) -> int:
        return len(self.transaction_ids)

    def __iter__(self) -> Iterator[PushItem]:
        return map(
            PushItem,
            repeat(self.queue),
            repeat(self.partition),
            self.payloads,
            self.transaction_ids,
            repeat(self.is_minted),
        )

    @overload
    def __getitem__(self, place: int) -> PushItem: ...
    @overload
    def __getitem__(self, place: slice) -> PushRun: ...
    def __getitem__(self, place: int | slice) -> PushItem | PushRun:
        payloads, ids = self.payloads[place], self.transaction_ids[place]
        if isinstance(place, slice):
            return PushRun(self.queue, self.partition, payloads, ids, is_minted=self.is_minted)  # type: ignore[arg-type]
        return PushItem(self.queue, self.partition, payloads, ids, self.is_minted)  # type: ignore[arg-type]


@final
class PushedRun(Sequence[Pushed]):
    """What became of a run of messages: all of them are stored, numbered one after the other."""

    __slots__ = ("partition_id", "receipt", "seqs")

    def __init__(self, seqs: range, partition_id: str, receipt: str) -> None:
        self.seqs = seqs
        self.partition_id = partition_id
        self.receipt = receipt

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Pushed]:
        return map(Pushed, repeat(QUEUED), self.seqs, repeat(self.partition_id), repeat(self.receipt))

    @overload
    def __getitem__(self, place: int) -> Pushed: ...
    @overload
    def __getitem__(self, place: slice) -> PushedRun: ...
    def __getitem__(self, place: int | slice) -> Pushed | PushedRun:
        if isinstance(place, slice):
            return PushedRun(self.seqs[place], self.partition_id, self.receipt)
        return Pushed(QUEUED, self.seqs[place], self.partition_id, self.receipt)


def payload_bytes(items: Sequence[PushItem]) -> int:
    """Of all of them together."""
    if type(items) is PushRun:
        return len(items.payloads.data)
    return len(items[0].payload) if len(items) == 1 else sum([len(item.payload) for item in items])
