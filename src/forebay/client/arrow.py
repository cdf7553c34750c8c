"""Arrow in and out over HTTP.

Reading asks for pieces of `PIECE_BYTES` of payloads, each a request of its own: memory stays flat, and a piece whose
server broke is requested again, so that each row comes once. A queue that is deleted and made again in the middle of it
ends the reading with an error. Writing cuts rows into requests of about `STAGE_BYTES`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeAlias
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from forebay.client.transport import Transport
from forebay.model.body_formats import ARROW_STREAM

PIECE_BYTES = 16 << 20
STAGE_BYTES = 16 << 20
Rows: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]"
SCHEMA = pa.schema(
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
"""What the server answers with."""


async def batches(
    transport: Transport,
    queue: str,
    from_seq: int | None,
    to_seq: int | None,
    partitions: Sequence[str],
    limit: int | None,
) -> AsyncIterator[pa.RecordBatch]:
    path = f"/api/v1/arrow/queues/{quote(queue, safe='')}"
    _, response = await transport.request("GET", f"{path}/range")
    bounds = msgspec.json.decode(response)
    next_seq = bounds["firstSeq"] if from_seq is None else from_seq
    last_seq = bounds["nextSeq"] - 1 if to_seq is None else min(to_seq, bounds["nextSeq"] - 1)
    left = limit
    while next_seq <= last_seq and (left is None or left > 0):
        named = [("partition", name) for name in partitions]
        if "identity" in bounds:
            # A queue that is made again between two pieces has other messages under the same seqs.
            named.append(("identity", bounds["identity"]))
        query = urlencode([("from", next_seq), ("to", last_seq), ("limitBytes", PIECE_BYTES), *named])
        _, body = await transport.request("GET", f"{path}?{query}")
        rows = 0
        for batch in pa.ipc.open_stream(body):
            rows += batch.num_rows
            next_seq = batch.column("seq")[-1].as_py() + 1
            yield batch if left is None else batch.slice(0, left)
            left = None if left is None else left - batch.num_rows
            if left is not None and left <= 0:
                return
        if not rows:
            return


def table_of(found: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(found, schema=SCHEMA)


async def stage(
    transport: Transport, queue: str, rows: Rows, producer: str, epoch: str, part: str, write: str
) -> list[str]:
    """The ids of the stages, in the order of the rows."""
    path = f"/api/v1/arrow/queues/{quote(queue, safe='')}"
    found = []
    for number, body in enumerate(_bodies(_batches(rows))):
        names = {"producer": producer, "epoch": epoch, "part": f"{part}.{number}" if part else str(number)}
        query = urlencode(names | ({"write": write} if write else {}))
        _, response = await transport.request("POST", f"{path}?{query}", body, content_type=ARROW_STREAM)
        found.append(str(msgspec.json.decode(response)["stage"]))
    return found


def _batches(rows: Rows) -> Iterable[pa.RecordBatch]:
    if isinstance(rows, pa.Table):
        return rows.to_batches()  # type: ignore[no-any-return]  # pyarrow has no types
    return [rows] if isinstance(rows, pa.RecordBatch) else rows


def _bodies(rows: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in _cut(rows):
        if waiting and size + batch.nbytes > STAGE_BYTES:
            yield _packed(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield _packed(waiting)


def _cut(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        if batch.nbytes <= STAGE_BYTES or batch.num_rows <= 1:
            yield batch
        else:
            half = batch.num_rows // 2
            yield from _cut([batch.slice(0, half), batch.slice(half)])


def _packed(rows: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows[0].schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
    return bytes(sink.getvalue())
