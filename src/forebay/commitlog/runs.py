"""Messages on their way into a log that come in runs: of one partition each, with their columns as blocks.

The body of their record is that of the same messages in a `MessageBatch`. But here single messages are not looked at,
and nothing is copied: the blocks are pieces of the record as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from forebay.commitlog.block import BODY_PREFIX, BODY_VERSION, PADDING, Piece, even_offsets, offsets
from forebay.model.text_block import TextBlock

_PRESENT = 0b1001111
"""created_us, flags, partition, transaction_id, payload."""
_LARGE_BYTES = 16 << 10
"""From here on a piece costs less to write by itself than to copy."""


class MessageRun(NamedTuple):
    """`flags` are those of each message."""

    partition: bytes
    flags: int
    transaction_ids: TextBlock
    payloads: TextBlock


class RunBatch:
    """At least one run; none is empty."""

    def __init__(self, runs: Sequence[MessageRun]) -> None:
        self._runs = runs
        self._counts = [len(run.payloads) for run in runs]
        self._partitions = list(map(_repeated, [run.partition for run in runs], self._counts))
        self._ids = [run.transaction_ids for run in runs]
        self._payloads = [run.payloads for run in runs]
        self.variable_bytes = sum([len(text.data) for text in chain(self._partitions, self._ids, self._payloads)])

    def __len__(self) -> int:
        return sum(self._counts)

    @property
    def payloads(self) -> Iterator[bytes]:
        return chain.from_iterable(self._payloads)

    def body(self, created_us: int, tag: bytes) -> list[Piece]:
        """The body of their record (`block`), in pieces."""
        count = len(self)
        flags = b"".join([bytes((run.flags,)) * own for run, own in zip(self._runs, self._counts, strict=True)])
        head = BODY_PREFIX.pack(BODY_VERSION, _PRESENT, 0, tag)
        pieces = [head, created_us.to_bytes(8, "little") * count, flags, PADDING[-count % 8]]
        for texts in (self._partitions, self._ids, self._payloads):
            pieces += _column(texts, count)
        return _joined([*pieces, PADDING[4]])


def _repeated(value: bytes, count: int) -> TextBlock:
    size = len(value)
    return TextBlock(value * count, range(size, size * count + 1, size) if size else [0] * count)


def _column(texts: Sequence[TextBlock], count: int) -> list[bytes]:
    first = texts[0].ends
    step = first.step if isinstance(first, range) else 0
    if step and all(isinstance(text.ends, range) and text.ends.step == step for text in texts):
        size = step * count
        return [even_offsets(count, step), *[text.data for text in texts], PADDING[-size % 8]]
    places, size = [0], 0
    for text in texts:
        places += [size + end for end in text.ends] if size else text.ends
        size += len(text.data)
    return [offsets(count).pack(*places), *[text.data for text in texts], PADDING[-size % 8]]


def _joined(pieces: Sequence[bytes]) -> list[Piece]:
    """Neighbours that are small as one piece; large ones as they are."""
    joined: list[Piece] = []
    for is_large, neighbours in groupby(pieces, lambda piece: len(piece) >= _LARGE_BYTES):
        together = list(neighbours)
        joined += together if is_large else [b"".join(together)]
    return joined
