"""One parcel in the hands of a handler: its messages, and what the handler makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from forebay.client.async_client import AsyncClient
from forebay.client.parcels import AwaitedRows, MissingMessages, OutputRows, Parcel, ParcelLease, ParcelOutcome
from forebay.model.internal_queues import EXPORT_GROUP, PRODUCER, outbox_of
from forebay.model.queue import ERROR_CHARACTERS_MAX

if TYPE_CHECKING:
    import pyarrow as pa


class ParcelWork:
    """A parcel under a lease. `parcel.did` is its id, `parcel.attempt` says how often it was leased."""

    def __init__(
        self, client: AsyncClient, lease: ParcelLease, parcel: Parcel, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.parcel = parcel
        self.lease = lease
        self.stages: list[str] = []
        self.missing: list[MissingMessages] = []
        """What of the parcel's messages is gone, once they were read."""
        self._client = client
        self._loop = loop
        self._output: OutputRows | None = None
        self._awaits: list[AwaitedRows] = []

    @property
    def definition(self) -> dict[str, Any]:
        """Of the parcel's flow, as it was when the parcel was cut."""
        return self.lease.definition(self.parcel)

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """The parcel's messages, in order, as `AsyncClient.read` gives them.

        Raises `MessagesGone` where some are gone, before the first or, if it is found out by reading, behind the last
        one. Where the flow's source has `failOnDataLoss: false` the rest is given, and the outcome says what is gone.
        `Unreachable` when no server answers.

        Example: `async for message in work.messages(): …`
        """
        is_loss_fatal = self.definition["source"].get("failOnDataLoss", True)
        missing: list[MissingMessages] = []
        async for message in self._client.read_parcel(self.parcel, missing=None if is_loss_fatal else missing):
            yield message
        self.missing = missing

    def read(self) -> Iterator[dict[str, Any]]:
        """The same, for a handler that runs in a thread.

        Example: `for message in work.read(): …`
        """
        found = self.messages()
        while (one := asyncio.run_coroutine_threadsafe(_next_or_none(found), self._loop).result()) is not None:
            yield one

    async def stage(self, queue: str, rows: pa.Table | pa.RecordBatch, *, is_output: bool = True) -> int:
        """Stage rows that become messages of `queue` when the parcel is completed; returns how many.

        `is_output`: the flow's next step reads them in place of what this one read. Once for a parcel. Raises `Refused`
        for rows that no queue takes.

        Example: `await work.stage("places", pa.table({"payload": [b'{"id": 7}']}))`
        """
        count: int = rows.num_rows
        part = f"{self.parcel.did}.{self.parcel.step}.{len(self.stages)}"
        self.stages += await self._client.stage(queue, rows, producer=PRODUCER, epoch=self.lease.lease_id, part=part)
        if is_output:
            self._output = OutputRows(queue, count)
        return count

    async def export(self, destination: str, rows: pa.Table | pa.RecordBatch) -> int:
        """Stage rows that are sent to a destination of the servers when the parcel is completed; returns how many.

        Only in a flow's last step. The parcel is EXPORTING until the destination has them. They go out in order, those
        of one flow behind each other.

        Example: `await work.export("warehouse", pa.table({"payload": [b'{"id": 7}']}))`
        """
        import pyarrow as pa

        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        if "partition" in table.column_names:
            table = table.drop_columns(["partition"])
        flow = self.parcel.flow
        table = table.append_column("partition", pa.repeat(pa.scalar(flow), table.num_rows))
        count = await self.stage(outbox_of(destination), table, is_output=False)
        self._awaits.append(AwaitedRows(outbox_of(destination), EXPORT_GROUP, flow, count))
        return count

    def outcome(
        self,
        state: Literal["COMPLETE", "FILTERED", "ERROR"] = "COMPLETE",
        *,
        error: str = "",
        rows_in: int | None = None,
        rows_out: int | None = None,
        filtered: int | None = None,
        bad: int | None = None,
        skipped: int | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> ParcelOutcome:
        """What became of this parcel, to be returned by its handler.

        `error`: why, for `ERROR`; `rows_in`, `rows_out`, `filtered`, `bad`: what its history shows;
        `skipped`: those of the filtered that failed; `annotations`: notes that stay with the parcel.

        Example: `return work.outcome(rows_in=10, rows_out=9, filtered=1)`
        """
        return ParcelOutcome(
            did=self.parcel.did,
            state=state,
            error=error[:ERROR_CHARACTERS_MAX],
            rows_in=rows_in,
            rows_out=rows_out,
            filtered=filtered,
            bad=bad,
            skipped=skipped,
            annotations=annotations or {},
            output=self._output if state == "COMPLETE" else None,
            awaits=self._awaits if state == "COMPLETE" else (),
            missing=self.missing if state != "ERROR" else (),
        )


async def _next_or_none(found: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
    return await anext(found, None)
