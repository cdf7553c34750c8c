"""Sends spans by OTLP over HTTP, beside everything else.

Up to `BATCH_SPANS` go in one request, every `INTERVAL_SECONDS` or as soon as there are so many. A request that fails is
tried again after a pause that doubles up to a minute; meanwhile spans wait, and what the buffer has no room for is
dropped (`Tracer`). A request that is refused for good (4xx but 408 and 429) is dropped. At the end what waits is sent
once, within `END_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from forebay.telemetry.tracing import Span, Tracer

BATCH_SPANS = 512
INTERVAL_SECONDS = 2.0
PAUSE_SECONDS_MAX = 60.0
TIMEOUT_SECONDS = 10.0
END_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_HEADERS = {"Content-Type": "application/x-protobuf"}
_RETRIED = (408, 429)
_SERVER_ERROR = 500

_log = logging.getLogger("forebay.telemetry")


class SpanExport:
    """Runs from `start` to `stop`. Nothing of it raises."""

    def __init__(
        self,
        tracer: Tracer,
        url: str,
        resource: Mapping[str, str],
        *,
        batch_spans: int = BATCH_SPANS,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.sent = 0
        self.failures = 0
        """Requests that failed."""
        self._tracer = tracer
        self._url = url
        self._resource = resource
        self._batch_spans = batch_spans
        self._interval_seconds = interval_seconds
        self._task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        if self._tracer.is_on and self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self._tracer.waiting and await self._send(self._taken()):
                    pass
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _run(self) -> None:
        pause = self._interval_seconds
        while True:
            await self._until_due(pause)
            is_well = True
            while self._tracer.waiting and is_well:
                spans, is_well = self._taken(), False
                try:
                    is_well = await self._send(spans)
                finally:
                    # Also where it was cancelled: what was not delivered is sent at the end.
                    if not is_well:
                        self._put_back(spans)
                if len(spans) < self._batch_spans:
                    break
            pause = self._interval_seconds if is_well else min(pause * 2, PAUSE_SECONDS_MAX)

    async def _until_due(self, seconds: float) -> None:
        """Earlier if there is a whole batch, unless the last request failed."""
        looks = max(round(seconds / _LOOK_SECONDS), 1)
        for _ in range(looks):
            await asyncio.sleep(_LOOK_SECONDS)
            if len(self._tracer.waiting) >= self._batch_spans and seconds <= self._interval_seconds:
                return

    def _taken(self) -> list[Span]:
        waiting = self._tracer.waiting
        return [waiting.popleft() for _ in range(min(len(waiting), self._batch_spans))]

    def _put_back(self, spans: Sequence[Span]) -> None:
        waiting: deque[Span] = self._tracer.waiting
        waiting.extendleft(reversed(spans))

    async def _send(self, spans: Sequence[Span]) -> bool:
        """False if it is to be tried again."""
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
            body = request_of(spans, self._resource).SerializeToString()
            async with self._session.post(self._url, data=body, headers=_HEADERS) as response:
                status = response.status
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return self._failed(f"{type(error).__name__}: {error}")
        if status >= _SERVER_ERROR or status in _RETRIED:
            return self._failed(f"status {status}")
        if status // 100 != 2:
            self._tracer.dropped += len(spans)
            self._failed(f"status {status}, spans are dropped")
            return True
        self.sent += len(spans)
        if self.failures:
            self.failures = 0
            _log.info("spans are taken again", extra={"action": "spans_taken"})
        return True

    def _failed(self, why: str) -> bool:
        self.failures += 1
        if self.failures == 1:
            _log.warning("spans are not taken by %s: %s", self._url, why, extra={"action": "spans_not_taken"})
        return False


def request_of(spans: Sequence[Span], resource: Mapping[str, str]) -> ExportTraceServiceRequest:
    """Spans as an OTLP request."""
    found = ResourceSpans()
    found.resource.attributes.extend(_attribute(name, value) for name, value in resource.items())
    scope = ScopeSpans(spans=map(_message, spans))
    scope.scope.name = "forebay"
    found.scope_spans.append(scope)
    return ExportTraceServiceRequest(resource_spans=[found])


def _message(span: Span) -> SpanMessage:
    message = SpanMessage(
        trace_id=bytes.fromhex(span.context.trace_id),
        span_id=bytes.fromhex(span.context.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        name=span.name,
        kind=int(span.kind),  # type: ignore[arg-type]  # the numbers are OTLP's
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=[_attribute(name, value) for name, value in span.attributes.items()],
    )
    for link in span.links:
        message.links.add(trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id))
    if span.error:
        message.status.code = Status.STATUS_CODE_ERROR
        message.status.message = span.error
    return message


def _attribute(name: str, value: str | int) -> KeyValue:
    found = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=name, value=found)
