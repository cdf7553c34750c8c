"""Messages on their way into a log that come in runs (`push_run`): all of one time.

The body of their record is that of the same messages in a `MessageBatch`. But here single messages are not looked at,
and nothing that is large is copied: the runs' blocks are pieces of the record as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, groupby

from forebay.commitlog.block import Piece, TextColumn, encoded_body, even_offsets, offsets
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED
from forebay.model.push_run import PushRun
from forebay.model.text_block import TextBlock

_LARGE_BYTES = 16 << 10
"""From here on a piece costs less to write by itself than to copy."""


class RunBatch:
    """At least one run."""

    def __init__(self, runs: Sequence[PushRun]) -> None:
        self._runs = runs
        self._counts = [len(run.transaction_ids) for run in runs]
        self._count = sum(self._counts)
        self._texts = [
            self._partitions(),
            _column(self._id_blocks(), self._count),
            self._traces() if any([run.trace_ids for run in runs]) else None,  # noqa: C419 - faster than to stop early
            self._headers() if any([run.headers for run in runs]) else None,  # noqa: C419
            _column([run.payloads for run in runs], self._count),
        ]
        self.variable_bytes = sum([text.size for text in self._texts if text is not None])

    def __len__(self) -> int:
        return self._count

    @property
    def payloads(self) -> Iterator[bytes]:
        return chain.from_iterable(run.payloads for run in self._runs)

    def body(self, created_us: int, tag: bytes) -> list[Piece]:
        """The body of their record (`block`), in pieces."""
        flags = [PAYLOAD_IS_BINARY * run.is_binary | TRANSACTION_ID_IS_MINTED * run.is_minted for run in self._runs]
        if flags.count(flags[0]) == len(flags):
            flag_bytes = bytes((flags[0],)) * self._count
        else:
            flag_bytes = b"".join([bytes((flag,)) * own for flag, own in zip(flags, self._counts, strict=True)])
        created = created_us.to_bytes(8, "little") * self._count
        return _joined(encoded_body(tag, created, flag_bytes, self._count, self._texts))

    def _partitions(self) -> TextColumn:
        runs = self._runs
        names = runs[0].partitions if len(runs) == 1 else list(chain.from_iterable([run.partitions for run in runs]))
        if names.count(names[0]) < len(names):
            encoded = [name.encode() for name in names]
            return _text_column(list(map(len, encoded)), [b"".join(encoded)], self._count)
        name = names[0].encode()
        size = len(name)
        return TextColumn(even_offsets(self._count, size), [name * self._count], size * self._count)

    def _id_blocks(self) -> list[TextBlock]:
        if self._count == len(self._runs):
            # Messages that came alone: their ids together are made into bytes sooner than each by itself.
            return [TextBlock.of_texts([run.transaction_ids[0] for run in self._runs])]
        return [run.id_block() for run in self._runs]

    def _traces(self) -> TextColumn | None:
        texts = chain.from_iterable([run.trace_column() for run in self._runs])
        return self._column_if_any([text.encode() for text in texts])

    def _headers(self) -> TextColumn | None:
        return self._column_if_any(list(chain.from_iterable([run.header_column() for run in self._runs])))

    def _column_if_any(self, values: Sequence[bytes]) -> TextColumn | None:
        """None where no message has a value."""
        return _column([TextBlock.of(values)], self._count) if any(values) else None


def _column(blocks: Sequence[TextBlock], count: int) -> TextColumn:
    if len(blocks) == 1:
        return _text_column(blocks[0].sizes, [blocks[0].data], count)
    sizes = list(chain.from_iterable([block.sizes for block in blocks]))
    return _text_column(sizes, [block.data for block in blocks], count)


def _text_column(sizes: Sequence[int], data: Sequence[bytes], count: int) -> TextColumn:
    size = sum(map(len, data))
    if size < _LARGE_BYTES * len(data):
        data = [b"".join(data)]
    if sizes.count(sizes[0]) == count:
        return TextColumn(even_offsets(count, sizes[0]), data, size)
    return TextColumn(offsets(count).pack(*accumulate(sizes, initial=0)), data, size)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours that are small as one piece; large ones as they are."""
    joined: list[Piece] = []
    for is_large, neighbours in groupby(pieces, lambda piece: len(piece) >= _LARGE_BYTES):
        together = list(neighbours)
        joined += together if is_large else [b"".join(together)]
    return joined
