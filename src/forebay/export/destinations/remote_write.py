"""Prometheus remote write 1.0: OTLP metrics are converted, remote write requests go on as they came.

Batches are sent in the order in which they were accepted, one at a time: Prometheus refuses samples that are older than
those it has of a series. Then it has stored nothing of the request, so `refused_samples` sends it again in pieces; what
is refused for good is counted as rejected, like data points that have no form in Prometheus.
"""

from __future__ import annotations

from threading import Lock

import cramjam

from forebay.clock import Clock
from forebay.export.batch import ExportBatch
from forebay.export.compression import compressed
from forebay.export.destination import TAKEN, Prepared, Receipt
from forebay.export.destinations.refused_samples import is_about_samples, send_in_pieces
from forebay.export.http_sender import HttpOptions, HttpSender
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind
from forebay.otlp.prometheus import Converter

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class RemoteWriteDestination:
    """A `Destination` that speaks remote write. `url` is the whole address, with its path."""

    kinds = frozenset({Kind.METRICS, Kind.REMOTE_WRITE})
    is_in_order = True
    is_prepared_inline = False

    def __init__(self, name: str, options: HttpOptions, clock: Clock) -> None:
        self.name = name
        self._sender = HttpSender(options, clock)
        self._url = options.url
        self._converter = Converter()
        self._lock = Lock()

    async def open(self) -> None:
        self._sender.open()

    def prepare(self, batch: ExportBatch) -> Prepared:
        body, left_out = self._converted(batch) if batch.kind is Kind.METRICS else (batch.body, TAKEN)
        return Prepared(batch, compressed(body, "snappy") if body else b"", self._headers(batch), left_out)

    def _headers(self, batch: ExportBatch) -> dict[str, str]:
        return {**HEADERS, "Idempotency-Key": batch.key}

    def _converted(self, batch: ExportBatch) -> tuple[bytes, Receipt]:
        try:
            with self._lock:
                converted = self._converter.convert(batch.body)
        except ValueError as error:
            raise SendFailed(ErrorClass.CLIENT_ERROR, str(error), is_of_content=True) from error
        return converted.body, Receipt(converted.rejected, "; ".join(sorted(converted.reasons)))

    async def send(self, prepared: Prepared) -> Receipt:
        if not prepared.body:  # nothing in it has a form in Prometheus
            return prepared.left_out
        try:
            await self._sender.post(self._url, prepared.body, prepared.headers)
        except SendFailed as failed:
            if not is_about_samples(failed):
                raise
            return prepared.left_out.plus(await self._send_in_pieces(prepared, failed))
        return prepared.left_out

    async def _send_in_pieces(self, prepared: Prepared, refusal: SendFailed) -> Receipt:
        # Without the batch's key: a destination that remembers keys would take the pieces for the same request.
        async def post(body: bytes) -> None:
            await self._sender.post(self._url, compressed(body, "snappy"), HEADERS)

        body = bytes(cramjam.snappy.decompress_raw(prepared.body))
        return await send_in_pieces(body, refusal, post)

    async def close(self) -> None:
        await self._sender.close()
