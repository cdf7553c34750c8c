"""Rows that are staged: their columns, the ids that they get, and how stores keep, cut and count them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from forebay.broker.bulk import CHECKSUMS, Content
from forebay.broker.encryption import SEALED_MARKS
from forebay.errors import PayloadInClear
from forebay.model.ids import random_prefix
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED
from forebay.model.push_run import PushRun, neighbours
from forebay.model.queue import DEFAULT_PARTITION, Queue
from forebay.model.text_block import TextBlock

STAGED_SCHEMA = pa.schema(
    [
        pa.field("flags", pa.uint8(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("transaction_id", pa.string(), nullable=False),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("headers", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
_LOW_NUMBERS = 10_000
"""Numbers whose four last digits are kept, for ids."""


def new_stage_id() -> str:
    """A UUID of version 8 whose last group is zero: the rows' own ids count there."""
    return f"{random_prefix()}{0:012d}"


def minted_ids(stage_id: str, rows_before: int, count: int) -> pa.Array:
    """The stage's id with the row's number in its last group. All have one length, so that only digits differ."""
    prefix, low_digits = stage_id.rpartition("-")[0], _low_digits()
    parts = []
    number, end = rows_before, rows_before + count
    while number < end:
        high, low = divmod(number, _LOW_NUMBERS)
        run = low_digits[low : low + end - number]
        # What is put between the runs' digits is the beginning of every id, and of the first one too.
        parts.append(f"{prefix}-{high:08d}".encode().join([b"", *run]))
        number += len(run)
    return pa.Array.from_buffers(pa.string(), count, [None, _even_offsets(count, len(stage_id)), _joined(parts)])


def _joined(parts: Sequence[bytes]) -> pa.Buffer:
    return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


@lru_cache(maxsize=1)
def _low_digits() -> list[bytes]:
    return [b"%04d" % number for number in range(_LOW_NUMBERS)]


@lru_cache(maxsize=8)
def _even_offsets(count: int, width: int) -> pa.Buffer:
    return pa.py_buffer(array("i", range(0, (count + 1) * width, width)))


def json_rows(stage_id: str, payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Payloads that are JSON as rows of a stage, in the default partition, with ids that are made for them."""
    count = len(payloads)
    no_text = pa.repeat(pa.scalar(""), count)
    columns = [
        pa.repeat(pa.scalar(TRANSACTION_ID_IS_MINTED, pa.uint8()), count),
        pa.repeat(pa.scalar(DEFAULT_PARTITION), count),
        minted_ids(stage_id, 0, count),
        no_text,
        no_text,
        pa.array(payloads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STAGED_SCHEMA)


def runs_of(queue: str, batch: pa.RecordBatch) -> list[PushRun]:
    """Staged rows as runs, for stores that take no Arrow columns."""
    flags, partitions, ids, traces, headers, payloads = (column.to_pylist() for column in batch.columns)
    return [
        PushRun(
            queue,
            partitions[places],
            TextBlock.of(payloads[places]),
            ids[places],
            bool(flag & TRANSACTION_ID_IS_MINTED),
            bool(flag & PAYLOAD_IS_BINARY),
            traces[places],
            [header.encode() for header in headers[places]],
        )
        for flag, places in neighbours(flags)
    ]


def cut(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most so many bytes, but for single rows that have more."""
    for batch in batches:
        if batch.nbytes <= bytes_max or batch.num_rows <= 1:
            yield batch
        else:
            half = batch.num_rows // 2
            yield from cut([batch.slice(0, half), batch.slice(half)], bytes_max)


def write(batches: Iterable[pa.RecordBatch], sink: Any) -> None:
    """Keep staged rows as one IPC stream in an Arrow output stream."""
    with pa.ipc.new_stream(sink, STAGED_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read(kept: Any) -> list[pa.RecordBatch]:
    """Staged rows that were kept; they point into the buffer or mapped file that they come from."""
    with pa.ipc.open_stream(kept) as reader:
        return list(reader)


def content_of(batches: Sequence[pa.RecordBatch]) -> Content:
    """How many messages, the bytes of their payloads, and what stands for all that their producer gave."""
    rows = sum(batch.num_rows for batch in batches)
    size = sum(pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0 for batch in batches)
    return Content(rows, size, sum(map(checksum_of, batches)) % CHECKSUMS)


def checksum_of(batch: pa.RecordBatch) -> int:
    """The sum of one number per row: the same for the same rows in another order, or in other batches.

    A row's number mixes the CRC-32C of each of its columns, so that values which change places between rows are seen.
    An id that was made for the row is no part of it: staged again, the row gets another.
    """
    if not batch.num_rows:
        return 0
    total = pc.binary_length(batch.column("payload")).cast(pa.uint64())
    crcs = pa.array(map(crc32c, batch.column("payload").to_pylist()), pa.uint64())
    for number, column in enumerate((crcs, *_named_columns(batch))):
        if column is not None:
            total = pc.add(total, pc.multiply(column, _factors()[number]))
    return int(pc.sum(_mixed(total)).as_py()) % CHECKSUMS


@lru_cache(maxsize=1)
def _factors() -> pa.Array:
    """Odd numbers without a pattern: one per column of a checksum, and one that spreads its bits.

    Not made when the module is loaded: that would load pandas, half a second of every start.
    """
    return pa.array(
        [
            0x9E3779B97F4A7C15,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
            0xD6E8FEB86659FD93,
        ],
        pa.uint64(),
    )


def _named_columns(batch: pa.RecordBatch) -> Iterator[pa.Array | None]:
    """CRCs of the texts of each row; None for a column of empty texts, whose CRCs are 0. Mostly few texts differ."""
    for name in ("partition", "transaction_id", "trace_id", "headers"):
        texts = batch.column(name)
        if name == "transaction_id":
            is_minted = pc.not_equal(pc.bit_wise_and(batch.column("flags"), TRANSACTION_ID_IS_MINTED), 0)
            if pc.all(is_minted).as_py():
                yield None
                continue
            texts = pc.if_else(is_minted, "", texts)
        if not pc.max(pc.binary_length(texts)).as_py():
            yield None
            continue
        encoded = texts.dictionary_encode()
        crcs = [crc32c(text.encode()) for text in encoded.dictionary.to_pylist()]
        yield pc.take(pa.array(crcs, pa.uint64()), encoded.indices)


def _mixed(numbers: pa.Array) -> pa.Array:
    """Spread over 64 bits. Arrow's products wrap around."""
    spread = pc.multiply(numbers, _factors()[-1])
    return pc.bit_wise_xor(spread, pc.shift_right(spread, pa.scalar(32, pa.uint64())))


def check_sealed(queue: Queue | None, batches: Sequence[pa.RecordBatch]) -> None:
    """Refuse payloads in clear for a queue that is encrypted (`queue_rules.refused_in_clear`, for columns)."""
    if queue is None or not queue.options.encryption_enabled:
        return
    for batch in batches:
        new, old = (pc.starts_with(batch.column("payload"), mark) for mark in SEALED_MARKS)
        if not pc.all(pc.or_(new, old)).as_py():
            raise PayloadInClear(queue.name)
