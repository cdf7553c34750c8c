"""A destination whose requests carry the trace that their messages are in: wraps any other.

Of several traces the first counts, and the others are links of the span. A request that is sent again has a span of its
own. Without a trace that is noted here, the messages' own context goes out as it came.
"""

from __future__ import annotations

from dataclasses import replace

from forebay.export.batch import ExportBatch, MessageBatch
from forebay.export.destination import Destination, Prepared, Receipt
from forebay.export.outcome import SendFailed
from forebay.otlp.kinds import Kind
from forebay.telemetry import tracing
from forebay.telemetry.tracing import Context, Tracer


class TracedDestination:
    """A `Destination`."""

    def __init__(self, inner: Destination, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def kinds(self) -> frozenset[Kind]:
        return self._inner.kinds

    @property
    def is_in_order(self) -> bool:
        return self._inner.is_in_order

    @property
    def is_prepared_inline(self) -> bool:
        return self._inner.is_prepared_inline

    async def open(self) -> None:
        await self._inner.open()

    def prepare(self, batch: ExportBatch) -> Prepared:
        return self._inner.prepare(batch)

    async def send(self, prepared: Prepared) -> Receipt:
        contexts = contexts_of(prepared.batch)
        first = contexts[0] if contexts else None
        span = self._tracer.begin(f"send {self.name}", tracing.Kind.CLIENT, first, links=contexts[1:])
        context = span.context if span else first
        if context is not None:
            prepared = replace(prepared, headers={**prepared.headers, tracing.HEADER: context.header()})
        failure = "cancelled"
        try:
            receipt = await self._inner.send(prepared)
            failure = ""
        except SendFailed as failed:
            failure = str(failed.error)
            raise
        finally:
            attributes: dict[str, str | int] = {"forebay.destination": self.name, "forebay.items": prepared.batch.items}
            self._tracer.end(span, attributes, failure)
        return receipt

    async def close(self) -> None:
        await self._inner.close()


def contexts_of(batch: ExportBatch) -> list[Context]:
    """The traces that the messages of a batch are in."""
    if not isinstance(batch, MessageBatch):
        return []
    return tracing.of_headers(message.headers for message in batch.messages if message.headers)
