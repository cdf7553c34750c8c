"""The way out: batches narrowed, put together and given the schema that readers are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from forebay.broker.bulk import LostSpan, RangeRequest
from forebay.broker.encryption import MARK, Address
from forebay.errors import QueueReplaced, RangeGone, RangeIncomplete

WIRE_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("partition", pa.string()),
        ("transaction_id", pa.string()),
        ("trace_id", pa.string()),
        ("headers", pa.string()),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("payload", pa.binary()),
    ]
)
BATCH_BYTES = 1 << 20
BATCH_ROWS = 1 << 16
_NO_TEXT = pa.nulls(1, pa.string())[0]  # `pa.scalar` would load pandas, half a second of every start


def on_the_wire(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with columns of the same names, from the log or a database, as readers get it. Payloads stay in place."""
    names = WIRE_SCHEMA.names
    columns = [
        _null_where_empty(batch.column(name)) if name in ("trace_id", "headers") else batch.column(name)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=WIRE_SCHEMA)


def _null_where_empty(texts: pa.Array) -> pa.Array:
    lengths = pc.binary_length(texts)
    if not pc.max(lengths).as_py():
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(pc.equal(lengths, 0), _NO_TEXT, texts)


def checked_start(wanted: RangeRequest, first_kept: int, removed_seq: int) -> int:
    """Where to begin. `RangeGone` when retention has removed a message there: `removed_seq` is the last that it did.

    A message that was deleted by itself makes no range gone, nor does a seq that no message has, nor what may be absent
    because the reader knows that it was removed.
    """
    first = first_kept if wanted.from_seq is None else max(wanted.from_seq, 1)
    allowed_seq = wanted.removed_up_to or 0
    if first < first_kept and first <= removed_seq and min(removed_seq, first_kept - 1) > allowed_seq:
        raise RangeGone(f"queue {wanted.queue!r}", first, first_kept)
    return max(first, first_kept)


def check_identity(wanted: RangeRequest, identity: str) -> None:
    if wanted.identity is not None and wanted.identity != identity:
        raise QueueReplaced(wanted.queue, wanted.identity, identity)


def check_complete(wanted: RangeRequest, removed_seq: int, lost: Sequence[LostSpan] = ()) -> None:
    """`RangeIncomplete` where messages are gone that the reader counts on.

    A message that retention removed behind the range counts too: it says only of the last one where that was, and those
    before it in the same partition went with it.
    """
    allowed_seq = wanted.removed_up_to
    if allowed_seq is None:
        return
    first = max(wanted.from_seq or 1, 1)
    if removed_seq > allowed_seq and removed_seq >= first:
        raise RangeIncomplete(wanted.queue, first, removed_seq, "retention")
    within = [span for span in lost if span.last_seq >= first and span.first_seq <= (wanted.to_seq or span.first_seq)]
    if within:
        first_seq, last_seq = min(span.first_seq for span in within), max(span.last_seq for span in within)
        raise RangeIncomplete(wanted.queue, max(first_seq, first), last_seq, "damage")


def narrowed(batch: pa.RecordBatch, wanted: RangeRequest) -> pa.RecordBatch:
    """What the request's partitions and times leave of a batch."""
    if wanted.partitions:
        batch = batch.filter(pc.is_in(batch.column("partition"), pa.array(wanted.partitions, pa.string())))
    if wanted.created_from_us is not None or wanted.created_to_us is not None:
        created = batch.column("created_at").cast(pa.int64())
        if wanted.created_from_us is not None:
            batch = batch.filter(pc.greater_equal(created, wanted.created_from_us))
            created = batch.column("created_at").cast(pa.int64())
        if wanted.created_to_us is not None:
            batch = batch.filter(pc.less(created, wanted.created_to_us))
    return batch


def put_together(
    batches: Iterable[pa.RecordBatch], bytes_max: int = BATCH_BYTES, rows_max: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of up to so many bytes and rows. A batch with more bytes stays as it is."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            part = batch.slice(start, rows_max) if batch.num_rows > rows_max else batch
            if waiting and (rows + part.num_rows > rows_max or size + part.nbytes > bytes_max):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def limited(
    batches: Iterable[pa.RecordBatch], bytes_max: int | None, *, is_first: bool = True
) -> Iterator[pa.RecordBatch]:
    """The first rows whose payloads have so many bytes together; at least one row if nothing was given before."""
    left = bytes_max
    for batch in batches:
        if left is None:
            yield batch
            continue
        sums = pc.cumulative_sum(pc.binary_length(batch.column("payload")).cast(pa.int64()))
        if batch.num_rows and sums[-1].as_py() > left:
            fitting = pc.sum(pc.less_equal(sums, left)).as_py()
            rows = max(fitting, 1 if is_first else 0)
            if rows:
                yield batch.slice(0, rows)
            return
        if batch.num_rows:
            left -= sums[-1].as_py()
            is_first = False
        yield batch


def has_marked(batch: pa.RecordBatch) -> bool:
    """Whether a payload is sealed, or looks like it."""
    return bool(pc.any(pc.starts_with(batch.column("payload"), MARK)).as_py())


def with_payloads(batch: pa.RecordBatch, queue: str, change: Callable[[bytes, Address], bytes]) -> pa.RecordBatch:
    """The batch with every payload changed, one by one: for those that are sealed."""
    place = batch.schema.get_field_index("payload")
    names = (batch.column(name).to_pylist() for name in ("partition", "transaction_id"))
    addresses = map(Address, repeat(queue), *names)
    changed = pa.array(list(map(change, batch.column(place).to_pylist(), addresses)), pa.binary())
    return batch.set_column(place, batch.schema.field(place), changed)
