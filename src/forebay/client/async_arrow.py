"""What `AsyncClient` can do with many messages at a time, as Arrow columns. PyArrow is imported when it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from forebay.client.messages import Committed, decode_body, encode_body
from forebay.client.transport import Transport
from forebay.errors import Permanent

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay.client.arrow import Rows


_decode_committed = msgspec.json.Decoder(Committed).decode


def _arrow() -> ModuleType:
    try:
        from forebay.client import arrow
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        remedy = "Install it: pip install 'forebay-client[arrow]'"
        raise Permanent("this call needs PyArrow, which is not installed", remedy=remedy) from None
    return arrow


class AsyncArrow:
    """Every call raises `Refused` for what the server will not do, and `Unreachable` when no server could do it."""

    _transport: Transport

    async def iter_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Messages of a queue as Arrow batches, up to `to_seq` or to what is there now, whichever ends first.

        Example: `async for batch in client.iter_arrow("orders", partitions=["berlin"]): print(batch.num_rows)`
        """
        arrow = _arrow()
        async for batch in arrow.batches(self._transport, queue, from_seq, to_seq, partitions, limit):
            yield batch

    async def read_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> pa.Table:
        """A queue as an Arrow table; `.to_pandas()` makes a data frame of it. Payloads are bytes.

        Example: `(await client.read_arrow("orders", limit=1_000)).to_pandas()`
        """
        arrow = _arrow()
        found = self.iter_arrow(queue, from_seq, to_seq, partitions=partitions, limit=limit)
        return arrow.table_of([batch async for batch in found])

    async def stage(
        self, queue: str, rows: Rows, *, producer: str, epoch: str | int, part: str = "", write: str = ""
    ) -> list[str]:
        """Send rows that no reader sees before `commit` names their stages; returns the ids of those.

        Columns: `payload` (bytes or text), and as you like `partition`, `transaction_id`, `trace_id`, `headers`.
        `write` tells several writes of one epoch to one queue apart; the commit of each names it.

        Example: `stages = await client.stage("orders", table, producer="nightly", epoch="2026-01-31")`
        """
        arrow = _arrow()
        stages: list[str] = await arrow.stage(self._transport, queue, rows, producer, str(epoch), part, write)
        return stages

    async def commit(
        self, stages: Sequence[str], *, producer: str, epoch: str | int, write: str = "", queue: str | None = None
    ) -> Committed:
        """Make staged rows messages, all at once, once for the producer's epoch, `write` and queue: safe to
        repeat with the same rows. Other rows are refused.

        `queue`: that of all the stages. A key for some queues has to name it, and so does a commit without stages.

        Example: `await client.commit(stages, producer="nightly", epoch="2026-01-31")`
        """
        body: dict[str, object] = {"producer": producer, "epoch": str(epoch), "stages": list(stages)}
        body |= _given(write, queue)
        _, answer = await self._transport.request("POST", "/api/v1/arrow/commit", encode_body(body))
        return _decode_committed(answer)

    async def abort(self, *, producer: str, epoch: str | int, write: str = "", queue: str | None = None) -> int:
        """Forget what was staged for the epoch and not committed; returns how many stages that were.

        Of one `write`, or one `queue`, if that is named; a key for some queues has to name the queue.

        Example: `await client.abort(producer="nightly", epoch="2026-01-31")`
        """
        query = urlencode({"producer": producer, "epoch": str(epoch)} | _given(write, queue))
        _, answer = await self._transport.request("DELETE", f"/api/v1/arrow/stages?{query}")
        return int(decode_body(answer)["removed"])


def _given(write: str, queue: str | None) -> dict[str, str]:
    return ({"write": write} if write else {}) | ({} if queue is None else {"queue": queue})
