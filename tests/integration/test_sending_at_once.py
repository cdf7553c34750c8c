"""`always_queue: false` and `enabled: false`: batches that go out at once, through the wiring of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cramjam
import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.assemble_export import Surroundings, way_out
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.config.lists import DestinationSettings
from forebay.config.model import Settings
from forebay.export.accepting import NotSent
from forebay.export.batch import ExportBatch
from forebay.export.way_out import Outlet
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.intake_sink import Accept
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest
from forebay.testing.memory_store import MemoryStore

AT_ONCE = {"always_queue": False, "retry_interval": "50ms", "circuit_breaker": {"reset_timeout": "100ms"}}
NO_QUEUE = {"enabled": False, "circuit_breaker": {"threshold": 1, "reset_timeout": "100ms"}}


def sample(at_ms: int) -> Telemetry:
    request = WriteRequest()
    series = request.timeseries.add()
    series.labels.add(name="__name__", value="m")
    series.samples.add(timestamp=at_ms, value=at_ms)
    return Telemetry(Kind.REMOTE_WRITE, request.SerializeToString(), 1)


def arrived(sink: HttpSink) -> list[int]:
    found = []
    for one in sink.received:
        request = WriteRequest()
        request.ParseFromString(bytes(cramjam.snappy.decompress_raw(one.body)))
        found += [series.samples[0].timestamp for series in request.timeseries]
    return found


@asynccontextmanager
async def receiving(folder: Path, url: str, queue: dict[str, Any]) -> AsyncIterator[tuple[Outlet, Accept]]:
    """A remote write receiver that leads to a destination with these settings: the outlet, and the way into it."""
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "receivers": {
                "remote_write": {"listen": "127.0.0.1:0", "to": "destination:d"},
                "buffer": {"flush_interval": "0s"},
            },
        }
    )
    to = DestinationSettings.model_validate({"name": "d", "type": "remote_write", "url": f"{url}/w", "queue": queue})
    store, waiting = MemoryStore(), WaitingRoom(asyncio.get_running_loop())
    made = way_out(settings, [to], [], Surroundings(store, waiting, SystemClock(), store.push, cpus=2))
    await made.start()
    accept: Accept = made.receivers[0]._accept  # type: ignore[attr-defined]
    try:
        yield made.outlets["d"], accept
    finally:
        await made.stop_receivers()
        await made.stop()
        waiting.close()


async def test_a_sample_that_was_queued_is_not_overtaken_by_those_that_could_go_at_once(tmp_path: Path) -> None:
    sink = HttpSink(answers=[503, 503])
    async with http_sink(sink), receiving(tmp_path, sink.url, AT_ONCE) as (_, accept):
        receipts = [await accept(sample(at_ms)) for at_ms in (1, 2, 3)]
        await until(lambda: len(arrived(sink)) == 3)
        assert arrived(sink) == [1, 2, 3]
        assert receipts == ["memory", "memory", "memory"]
        assert await accept(sample(4)) == "sent"  # all that was queued has arrived


async def test_samples_that_arrive_together_go_at_once_one_after_the_other(tmp_path: Path) -> None:
    sink = HttpSink(delay_seconds=0.02)
    async with http_sink(sink), receiving(tmp_path, sink.url, AT_ONCE) as (_, accept):
        receipts = await asyncio.gather(*(accept(sample(at_ms)) for at_ms in range(10)))
        assert receipts == ["sent"] * 10
        assert arrived(sink) == list(range(10))


async def test_without_a_queue_what_an_earlier_run_left_is_sent_first(tmp_path: Path) -> None:
    async with http_sink() as away:
        url, port = away.url, away.port
    async with receiving(tmp_path, url, AT_ONCE) as (_, accept):
        await accept(sample(1))
    async with receiving(tmp_path, url, NO_QUEUE) as (outlet, accept):
        with pytest.raises(NotSent, match="older batches of an earlier run are sent first"):
            await accept(sample(2))
        sink = HttpSink()
        async with http_sink(sink, port=port):
            await until(outlet.feed.is_empty)
            assert await accept(sample(2)) == "sent"
            assert arrived(sink) == [1, 2]


async def test_without_a_queue_the_source_itself_finds_out_that_the_destination_is_back(tmp_path: Path) -> None:
    sink = HttpSink(answers=[503])
    async with http_sink(sink), receiving(tmp_path, sink.url, NO_QUEUE) as (outlet, accept):
        with pytest.raises(NotSent, match="did not take the batch: server_error"):
            await accept(sample(1))
        with pytest.raises(NotSent):  # the breaker is open
            await accept(sample(1))
        await until(lambda: outlet.exporter.delivery.seconds_until_open() == 0)
        assert await accept(sample(1)) == "sent"


async def test_a_destination_that_is_paused_is_sent_nothing_at_once(tmp_path: Path) -> None:
    sink = HttpSink()
    async with http_sink(sink), receiving(tmp_path, sink.url, AT_ONCE) as (outlet, accept):
        outlet.exporter.pause()
        assert await accept(sample(1)) == "memory"
        assert sink.attempts == []


async def test_an_empty_queue_is_one_without_batches_in_the_failover_queue_too(tmp_path: Path) -> None:
    async with receiving(tmp_path, "http://127.0.0.1:1", AT_ONCE) as (outlet, _):
        assert outlet.feed.is_empty()
        outlet.feed.failover.push(ExportBatch(Kind.REMOTE_WRITE, b"", 1, 1, "b"))
        assert not outlet.feed.is_empty()
