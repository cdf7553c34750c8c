"""What every destination promises, whatever it speaks: the same batch as the same request, and trouble by its class."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam
import grpc
import grpc.aio
import pytest
import pytest_asyncio
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fixtures.http_sink import HttpSink, Received, http_sink
from forebay.clock import SystemClock
from forebay.errors import StoreUnavailable
from forebay.export.batch import ExportBatch, ExportMessage, MessageBatch
from forebay.export.destination import Destination, Prepared, Receipt
from forebay.export.destinations.file import FileDestination
from forebay.export.destinations.http import HttpDestination
from forebay.export.destinations.otlp_grpc import METHODS, GrpcOptions, OtlpGrpcDestination
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.destinations.queue import OutgoingMessage, QueueDestination
from forebay.export.destinations.remote_write import RemoteWriteDestination
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import SendFailed
from forebay.export.splitting import halves
from forebay.filesystem import RealFilesystem
from forebay.model.push_run import run_of_one
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest, count_items, parsed
from forebay.testing.memory_store import MemoryStore
from forebay.testing.servers.machine import free_port
from unit.export.test_splitting import metrics

CLOCK = SystemClock()
ITEMS = 4
TYPES: dict[str, Any] = {
    "otlp_http": OtlpHttpDestination,
    "otlp_grpc": OtlpGrpcDestination,
    "remote_write": RemoteWriteDestination,
    "http": HttpDestination,
    "queue": QueueDestination,
    "file": FileDestination,
}


@dataclass
class Peer:
    """A destination and what is at the other end of it. `there` starts that end, and stops it."""

    destination: Destination
    there: Callable[[], AbstractAsyncContextManager[object]]
    arrivals: Callable[[Kind], list[tuple[str, int]]]
    """Idempotency key, or ids, and the items of each request that was taken."""
    knows_repeats: bool = False
    """Whether the other end takes a batch once that comes again."""
    has_no_keys: bool = False
    """Whether the other end is never told a key."""

    def is_keyed(self, kind: Kind) -> bool:
        return not self.has_no_keys and not self.knows_messages(kind)

    def knows_messages(self, kind: Kind) -> bool:
        """Whether it is the messages that are known again, whatever the batch they come in."""
        return self.knows_repeats and kind is Kind.MESSAGES


def batch_of(kind: Kind, key: str = "key") -> ExportBatch:
    if kind is Kind.MESSAGES:
        messages = [
            ExportMessage("q", f"p{n % 2}", n, f"t{n}", 1_000_000, b'{"n": %d}' % n) for n in range(1, ITEMS + 1)
        ]
        return MessageBatch(messages, 1, key)
    request: Any = {Kind.METRICS: metrics(1, 1, 1, ITEMS), Kind.TRACES: ExportTraceServiceRequest()}.get(kind)
    if kind is Kind.TRACES:
        spans = request.resource_spans.add().scope_spans.add().spans
        for number in range(ITEMS):
            spans.add(name=str(number))
    elif kind is Kind.LOGS:
        request = ExportLogsServiceRequest()
        records = request.resource_logs.add().scope_logs.add().log_records
        for number in range(ITEMS):
            records.add(severity_text=str(number))
    elif kind is Kind.REMOTE_WRITE:
        request = WriteRequest()
        for number in range(ITEMS):
            one = request.timeseries.add()
            one.labels.add(name="__name__", value=f"s{number}")
            one.samples.add(value=number, timestamp=number)
    return ExportBatch(kind, request.SerializeToString(), ITEMS, 1, key)


CASES = [(name, kind) for name, made in TYPES.items() for kind in sorted(made.kinds)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, Kind]:
    found: tuple[str, Kind] = request.param
    return found


@pytest.fixture
def kind(case: tuple[str, Kind]) -> Kind:
    return case[1]


@pytest_asyncio.fixture
async def peer(case: tuple[str, Kind], tmp_path: Path) -> AsyncIterator[Peer]:
    make: Callable[[Path], Peer] = globals()[f"peer_{case[0]}"]
    peer = make(tmp_path)
    await peer.destination.open()
    yield peer
    await peer.destination.close()


def peer_otlp_http(_: Path) -> Peer:
    sink = HttpSink(free_port())
    destination = OtlpHttpDestination("d", HttpOptions(sink.url, timeout_seconds=5), CLOCK)
    return over_http(destination, sink, lambda kind, found: count_items(kind, parsed(kind, found)))


def peer_remote_write(_: Path) -> Peer:
    sink = HttpSink(free_port())
    destination = RemoteWriteDestination("d", HttpOptions(sink.url, timeout_seconds=5), CLOCK)

    def items(_: Kind, found: bytes) -> int:
        return count_items(Kind.REMOTE_WRITE, parsed(Kind.REMOTE_WRITE, bytes(cramjam.snappy.decompress_raw(found))))

    return over_http(destination, sink, items)


def peer_http(_: Path) -> Peer:
    sink = HttpSink(free_port())
    destination = HttpDestination("d", HttpOptions(sink.url, timeout_seconds=5), CLOCK, body_format="envelopes")
    return over_http(destination, sink, lambda _, found: len(json.loads(found)))


def over_http(destination: Destination, sink: HttpSink, items: Callable[[Kind, bytes], int]) -> Peer:
    def arrivals(kind: Kind) -> list[tuple[str, int]]:
        def told(one: Received) -> tuple[str, int]:
            return one.headers["Idempotency-Key"], items(kind, one.body)

        return [told(one) for one in sink.received]

    return Peer(destination, lambda: http_sink(sink, port=sink.port), arrivals)


def peer_otlp_grpc(_: Path) -> Peer:
    port = free_port()
    received: list[tuple[str, bytes]] = []

    async def export(body: bytes, context: Any) -> bytes:
        received.append((dict(context.invocation_metadata())["idempotency-key"], body))
        return b""

    @asynccontextmanager
    async def there() -> AsyncIterator[None]:
        server = grpc.aio.server()
        for path in METHODS.values():
            service, _, name = path.strip("/").rpartition("/")
            method = grpc.unary_unary_rpc_method_handler(export)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    def arrivals(kind: Kind) -> list[tuple[str, int]]:
        return [(key, count_items(kind, parsed(kind, body))) for key, body in received]

    return Peer(OtlpGrpcDestination("d", GrpcOptions(f"127.0.0.1:{port}", timeout_seconds=5)), there, arrivals)


def peer_queue(_: Path) -> Peer:
    store = MemoryStore(CLOCK)
    is_there = False
    stored: list[OutgoingMessage] = []

    async def push(messages: Sequence[OutgoingMessage]) -> None:
        if not is_there:
            raise StoreUnavailable("away")
        items = [run_of_one(m.queue, m.partition, m.payload, m.transaction_id, is_binary=m.is_bytes) for m in messages]
        pushed = await store.push(items)
        stored.extend(m for m, one in zip(messages, pushed, strict=True) if one.status == "queued")

    @asynccontextmanager
    async def there() -> AsyncIterator[None]:
        nonlocal is_there
        is_there = True
        yield
        is_there = False

    def arrivals(kind: Kind) -> list[tuple[str, int]]:
        if kind is Kind.MESSAGES:
            return [("of messages", len(stored))]
        return [(message.transaction_id, count_items(kind, parsed(kind, message.payload))) for message in stored]

    return Peer(QueueDestination("d", "copies", push), there, arrivals, knows_repeats=True)


def peer_file(folder: Path) -> Peer:
    path = folder / "there" / "lines"

    @asynccontextmanager
    async def there() -> AsyncIterator[None]:
        path.parent.mkdir(exist_ok=True)
        yield
        path.parent.rename(folder / f"gone-{CLOCK.now_us()}")

    def arrivals(kind: Kind) -> list[tuple[str, int]]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if kind is Kind.MESSAGES:
            return [(str(lines[at]["seq"]), len(lines[at : at + ITEMS])) for at in range(0, len(lines), ITEMS)]
        return [(json.dumps(line), ITEMS) for line in lines]

    destination = FileDestination("d", path, RealFilesystem(), CLOCK, body_format="envelopes")
    return Peer(destination, there, arrivals, has_no_keys=True)


async def test_all_that_it_takes_arrives_whole_with_its_key(peer: Peer, kind: Kind) -> None:
    async with peer.there():
        assert await peer.destination.send(peer.destination.prepare(batch_of(kind))) == Receipt()
        [(key, items)] = peer.arrivals(kind)
    assert items == ITEMS
    assert not peer.is_keyed(kind) or "key" in key


async def test_batch_that_is_sent_again_is_known_by_its_key_and_halves_have_keys_of_their_own(
    peer: Peer, kind: Kind
) -> None:
    batch, destination = batch_of(kind), peer.destination
    async with peer.there():
        for _ in range(2):
            await destination.send(destination.prepare(batch))
        twice = peer.arrivals(kind)
        for half in halves(batch):
            await destination.send(destination.prepare(half))
        after = peer.arrivals(kind)
    if peer.knows_repeats:
        assert len(twice) == 1
    else:
        assert len(twice) == 2
        assert twice[0] == twice[1]
    if peer.is_keyed(kind):
        assert len({key for key, _ in after}) == 3


async def test_what_is_away_is_tried_again_and_what_comes_back_takes_it(peer: Peer, kind: Kind) -> None:
    destination = peer.destination
    prepared = destination.prepare(batch_of(kind))
    for _ in range(2):
        with pytest.raises(SendFailed) as failed:
            await destination.send(prepared)
        assert failed.value.is_retryable, failed.value.message
        assert failed.value.message
        async with peer.there():
            await until_taken(destination, prepared)


async def until_taken(destination: Destination, prepared: Prepared) -> None:
    """gRPC tries to connect again after a pause of its own."""
    async with asyncio.timeout(30):
        while True:
            try:
                await destination.send(prepared)
            except SendFailed as failed:
                assert failed.is_retryable  # noqa: PT017
                await asyncio.sleep(0.05)
            else:
                return


async def test_it_is_opened_again_after_it_was_closed(peer: Peer, kind: Kind) -> None:
    for _ in range(2):
        async with peer.there():
            await until_taken(peer.destination, peer.destination.prepare(batch_of(kind)))
        await peer.destination.close()
        await peer.destination.close()
        await peer.destination.open()


async def test_batches_are_prepared_in_any_thread(peer: Peer, kind: Kind) -> None:
    batches = [batch_of(kind, f"key{number}") for number in range(8)]
    prepared = await asyncio.gather(*(asyncio.to_thread(peer.destination.prepare, batch) for batch in batches))
    async with peer.there():
        for one in prepared:
            await peer.destination.send(one)
        assert sum(items for _, items in peer.arrivals(kind)) == (ITEMS if peer.knows_messages(kind) else 8 * ITEMS)
