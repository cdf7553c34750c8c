"""Records that are written from Arrow columns: the same bytes as from a `MessageBatch`, wherever the columns lie."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.commitlog import block
from forebay.commitlog.columns import ColumnBatch
from forebay.model.message import MessageBatch

TAG = bytes(range(16))
ROWS = st.lists(
    st.tuples(st.integers(0, 7), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5),
              st.binary(max_size=9)),
    min_size=1,
    max_size=30,
)  # fmt: skip


def as_columns(rows: list[tuple[int, str, str, str, str, bytes]]) -> pa.RecordBatch:
    names = ["flags", "partition", "transaction_id", "trace_id", "headers", "payload"]
    kinds = [pa.uint8(), *[pa.string()] * 4, pa.binary()]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


@given(ROWS, st.data())
def test_record_of_columns_is_that_of_the_same_messages(
    rows: list[tuple[int, str, str, str, str, bytes]], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - start))
    cut = ColumnBatch(as_columns(rows).slice(start, count))
    flags, *texts = zip(*rows[start : start + count], strict=True)
    encoded = [[text.encode() if isinstance(text, str) else text for text in column] for column in texts]
    partitions, ids, traces, headers, payloads = [column if any(column) else None for column in encoded]
    batch = MessageBatch(
        payloads=payloads or encoded[-1],
        created_us=[5] * count,
        partitions=partitions,
        transaction_ids=ids,
        trace_ids=traces,
        headers=headers,
        flags=list(flags),
    )
    written = block.framed(cut.body(5, TAG), 7, count, (5, 5), compress=False)
    assert b"".join(written) == b"".join(block.encode([batch], 7, tag=TAG))
    assert (cut.variable_bytes, list(cut.payloads)) == (batch.variable_bytes, list(batch.payloads))
