"""Receivers on real sockets, asked in every wrong way: answered as the table of `forebay.ingest.receivers` says."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from fixtures.waiting import until
from forebay.clock import SystemClock
from forebay.errors import BatchTooLarge, SendQueueFull, StoreUnavailable
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.filesystem import RealFilesystem
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.in_flight import InFlight
from forebay.ingest.receivers.intake_sink import RETRY_SECONDS
from forebay.ingest.receivers.metrics_buffer import MetricsBuffer
from forebay.ingest.receivers.otlp_grpc import GrpcReceiver
from forebay.ingest.receivers.otlp_http import JSON, PROTOBUF, HttpReceiver
from forebay.otlp.kinds import Kind
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.memory import MemoryQueue
from unit.export.test_splitting import metrics
from unit.ingest.receivers.test_decoding import nested

SIZE_MAX = 20_000
BODY = metrics(1, 1, 2, 3).SerializeToString()
ALL = frozenset({Kind.METRICS, Kind.TRACES, Kind.LOGS})
CLOCK = SystemClock()


class Sink:
    """Accepts, or raises what it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.taken: list[Telemetry] = []
        self.failure = failure

    async def accept(self, telemetry: Telemetry) -> str:
        if self.failure is not None:
            raise self.failure
        self.taken.append(telemetry)
        return "memory"


@asynccontextmanager
async def http(sink: Any, kinds: frozenset[Kind] = ALL, **options: Any) -> AsyncIterator[tuple[HttpReceiver, str]]:
    in_flight = InFlight(0, body_bytes_max=SIZE_MAX)
    receiver = HttpReceiver("r", "127.0.0.1", 0, sink.accept, SIZE_MAX, kinds, in_flight, **options)
    await receiver.start()
    try:
        yield receiver, f"http://127.0.0.1:{receiver.port}"
    finally:
        await receiver.stop()
        assert in_flight.bytes == 0, "whatever happened, nothing is held any more"


async def told(url: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {"Content-Type": PROTOBUF} | {name.replace("_", "-"): value for name, value in headers.items()}
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.request("POST", url, data=body, headers=named, timeout=timeout) as answer:
        return answer.status, dict(answer.headers), await answer.read()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (BODY, {}, 200),
        (b"", {}, 200),
        (b"{}", {"Content_Type": JSON}, 200),
        (b"{}", {"Content_Type": "application/json; charset=utf-8"}, 200),
        (b"[]", {"Content_Type": JSON}, 400),
        (b"{", {"Content_Type": JSON}, 400),
        (BODY[:-1], {}, 400),
        (nested(1000), {}, 400),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(BODY)[:-9], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(bytes(SIZE_MAX * 100)), {"Content_Encoding": "gzip"}, 413),
        (bytes(SIZE_MAX), {}, 400),
        (bytes(SIZE_MAX + 1), {}, 413),
        (BODY, {"Content_Encoding": "br"}, 415),
        (BODY, {"Content_Type": "text/plain"}, 415),
        (BODY, {"Content_Type": ""}, 415),
        (b"{}", {"Content_Type": JSON, "Origin": "http://127.0.0.1:4318"}, 403),
        (BODY, {"Origin": "null"}, 403),
    ],
    ids=[
        "taken",
        "empty",
        "json",
        "json with charset",
        "json that is no object",
        "json cut short",
        "truncated",
        "deep",
        "no gzip",
        "gzip cut short",
        "gzip bomb",
        "zeros",
        "large",
        "unknown encoding",
        "unknown type",
        "no type",
        "web page",
        "web page without a name",
    ],
)
async def test_http_answers_as_the_table_says_and_counts(body: bytes, headers: dict[str, str], status: int) -> None:
    sink = Sink()
    async with http(sink) as (receiver, url):
        found, answered, text = await told(f"{url}/v1/metrics", body, **headers)
        assert found == status, text
        assert receiver.requests == {status: 1}
        assert len(sink.taken) == (status == 200)
        assert answered.get("Forebay-Receipt") == ("memory" if status == 200 else None)
        if status != 200 and "json" not in headers.get("Content_Type", ""):
            assert Status.FromString(text).message
        assert (await told(f"{url}/v1/metrics", BODY))[0] == 200, "and goes on"


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (SendQueueFull(1, 1, 1, 1), 429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (StoreUnavailable("away"), 503, grpc.StatusCode.UNAVAILABLE),
        (BatchTooLarge(10, 1), 413, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (RuntimeError("a bug"), 500, grpc.StatusCode.INTERNAL),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_cannot_be_accepted_is_told_with_a_retry_hint_if_that_helps(
    failure: Exception, status: int, code: grpc.StatusCode
) -> None:
    async with http(Sink(failure)) as (receiver, url):
        found, headers, _ = await told(f"{url}/v1/metrics", BODY)
        assert found == status
        assert headers.get("Retry-After") == (str(RETRY_SECONDS) if status in (429, 503) else None)
        assert receiver.requests == {status: 1}
        assert receiver.items == {}
    async with grpc_receiver(Sink(failure)) as (rpc, export):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(BODY)
        assert refused.value.code() is code
        assert retry_seconds(refused.value) == (RETRY_SECONDS if status in (429, 503) else None)
        assert rpc.requests == {status: 1}


async def test_body_that_does_not_end_is_cut_off() -> None:
    async def without_end() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)
            await asyncio.sleep(0)

    async with http(Sink()) as (receiver, url):
        try:
            status, *_ = await told(f"{url}/v1/metrics", without_end())
        except aiohttp.ClientError:  # the connection was closed while the client was still writing
            status = 413
        assert status == 413
        assert receiver.requests == {413: 1}


async def test_body_that_does_not_arrive_is_waited_for_as_long_as_stated() -> None:
    head = (
        b"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\n"
    )
    async with http(Sink(), body_seconds_max=0.1) as (receiver, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(head + b"a few bytes")
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await writer.wait_closed()
        assert receiver.requests == {408: 1}


async def test_client_that_goes_away_within_a_body_leaves_nothing_behind() -> None:
    head = (
        b"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\n"
    )
    sink = Sink()
    async with http(sink) as (receiver, url):
        _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(head + BODY[:10])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await told(f"{url}/v1/metrics", BODY))[0] == 200
        assert [telemetry.body for telemetry in sink.taken] == [BODY]


async def test_only_what_is_wanted_has_a_path() -> None:
    async with http(Sink(), frozenset({Kind.METRICS})) as (_, url):
        assert (await told(f"{url}/v1/metrics", BODY))[0] == 200
        assert (await told(f"{url}/v1/traces", b""))[0] == 404
        assert (await told(f"{url}/api/v1/write", b""))[0] == 404
    async with grpc_receiver(Sink(), frozenset({Kind.TRACES})) as (_, export):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(BODY)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_remote_write_is_snappy_of_version_1() -> None:
    async with http(Sink(), frozenset({Kind.REMOTE_WRITE})) as (_, url):
        write = f"{url}/api/v1/write"
        assert (await told(write, b"\x00", Content_Encoding="snappy"))[0] == 204
        assert (await told(write, b"", Content_Encoding="gzip"))[0] == 415
        assert (await told(write, b""))[0] == 415
        version_2 = f"{PROTOBUF};proto=io.prometheus.write.v2.Request"
        assert (await told(write, b"\x00", Content_Encoding="snappy", Content_Type=version_2))[0] == 415


async def test_requests_that_wait_together_hold_no_more_than_stated() -> None:
    goes_on = asyncio.Event()

    class Slow(Sink):
        async def accept(self, telemetry: Telemetry) -> str:
            await goes_on.wait()
            return await super().accept(telemetry)

    value = metrics(1, 1, 1, 1)
    value.resource_metrics[0].schema_url = "x" * (SIZE_MAX - 1000)
    large = value.SerializeToString()
    async with http(Slow()) as (receiver, url):
        holding = [asyncio.create_task(told(f"{url}/v1/metrics", large)) for _ in range(2)]
        await until(lambda: receiver._in_flight.bytes >= 2 * len(large))
        status, headers, _ = await told(f"{url}/v1/metrics", large)
        assert (status, headers["Retry-After"]) == (429, str(RETRY_SECONDS))
        goes_on.set()
        assert [status for status, *_ in await asyncio.gather(*holding)] == [200, 200]
        assert (await told(f"{url}/v1/metrics", large))[0] == 200


# gRPC


@asynccontextmanager
async def grpc_receiver(sink: Sink, kinds: frozenset[Kind] = ALL) -> AsyncIterator[tuple[GrpcReceiver, Any]]:
    """A receiver, and a function that sends a metrics request to it."""
    in_flight = InFlight(0, body_bytes_max=SIZE_MAX)
    receiver = GrpcReceiver("g", "127.0.0.1", 0, sink.accept, SIZE_MAX, kinds, in_flight)
    await receiver.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{receiver.port}") as channel:
            yield receiver, channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
    finally:
        await receiver.stop()


def retry_seconds(error: grpc.aio.AioRpcError) -> float | None:
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            info = RetryInfo()
            assert Status.FromString(value).details[0].Unpack(info)
            return float(info.retry_delay.seconds)
    return None


@pytest.mark.parametrize(
    ("body", "compression", "code"),
    [
        (BODY[:-1], grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (nested(1000), grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(SIZE_MAX + 1), grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (bytes(SIZE_MAX * 100), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["truncated", "deep", "large", "bomb"],
)
async def test_grpc_answers_as_the_table_says(
    body: bytes, compression: grpc.Compression, code: grpc.StatusCode
) -> None:
    sink = Sink()
    async with grpc_receiver(sink) as (_, export):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(body, compression=compression, timeout=60)
        assert refused.value.code() is code
        assert retry_seconds(refused.value) is None
        assert sink.taken == []
        assert await export(BODY, compression=compression) == b"", "and goes on"


# a full send queue


@pytest.mark.parametrize(("behavior", "reason"), [("drop_newest", "newest"), ("block", "block_timeout")])
async def test_full_send_queue_is_429_and_room_makes_it_200_again(behavior: Any, reason: str, tmp_path: Path) -> None:
    queue = MemoryQueue(Limits(1, 1_000_000), CODEC, CLOCK)
    failover = MemoryQueue(Limits(1, 1_000_000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), tmp_path, CLOCK)
    feed = QueueFeed("d", queue, failover, letters, CLOCK, QueueFeedOptions(behavior, 0.05, 1.0))

    async def hand_on(kind: Kind, body: bytes, items: int) -> str:
        await feed.push(ExportBatch(kind, body, items, CLOCK.now_us()))
        return "memory"

    async with http(MetricsBuffer(hand_on, flush_seconds=0, batch_items=10, batch_bytes=1000)) as (receiver, url):
        assert (await told(f"{url}/v1/metrics", BODY))[0] == 200
        status, headers, _ = await told(f"{url}/v1/metrics", BODY)
        assert (status, headers["Retry-After"]) == (429, str(RETRY_SECONDS))
        assert feed.dropped == {reason: 1}
        claim = await feed.claim()
        assert claim is not None
        await feed.confirm(claim)
        assert (await told(f"{url}/v1/metrics", BODY))[0] == 200
        assert receiver.requests == {200: 2, 429: 1}
