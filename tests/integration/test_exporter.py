"""An exporter between a send queue and a real HTTP server that misbehaves in every way we know of."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until
from forebay.clock import SystemClock
from forebay.errors import SendQueueFull
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.delivery import DeliveryOptions
from forebay.export.destinations.otlp_http import OtlpHttpDestination
from forebay.export.exporter import Exporter, ExporterOptions, Paces, PipelineOptions
from forebay.export.feed import Claim
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass
from forebay.export.queue_feed import QueueFeed, QueueFeedOptions
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import count_items, parsed
from forebay.sendqueue.backoff import Backoff
from forebay.sendqueue.breaker import State
from forebay.sendqueue.opening import Mode, open_send_queue
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.memory import MemoryQueue
from unit.export.test_splitting import metrics

CLOCK = SystemClock()
QUICK = Backoff(interval_seconds=0.02, multiplier=2, max_seconds=0.1)
MODES: tuple[Mode, ...] = ("memory", "disk")


def batch(number: int, points: int = 4) -> ExportBatch:
    request = metrics(1, 1, 1, points)
    return ExportBatch(Kind.METRICS, request.SerializeToString(), points, CLOCK.now_us(), f"b{number}")


@asynccontextmanager
async def exporting(
    url: str,
    directory: Path,
    *,
    mode: Mode = "memory",
    delivery: DeliveryOptions | None = None,
    options: ExporterOptions | None = None,
    feed_options: QueueFeedOptions | None = None,
    limits: Limits | None = None,
    timeout: float = 5.0,
    drain: float = 0.0,
    limit: asyncio.Semaphore | None = None,
) -> AsyncIterator[tuple[Exporter, QueueFeed]]:
    queue = open_send_queue(mode, directory, limits or Limits(1000, 10_000_000), CODEC, CLOCK, RealFilesystem())
    failover = MemoryQueue(Limits(10, 1_000_000), CODEC, CLOCK)
    letters = DeadLetters(RealFilesystem(), directory, CLOCK)
    feed = QueueFeed("sink", queue, failover, letters, CLOCK, feed_options or QueueFeedOptions(sync_seconds=0.05))
    delivery = delivery or DeliveryOptions(backoff=QUICK, breaker_reset_seconds=0.2)
    exporter = Exporter(
        OtlpHttpDestination("sink", HttpOptions(url, timeout_seconds=timeout), CLOCK),
        feed,
        CLOCK,
        options or ExporterOptions(delivery=delivery),
        limit or asyncio.Semaphore(16),
    )
    await exporter.start()
    try:
        yield exporter, feed
        # Whatever a test has done: what was accepted is somewhere.
        assert feed.account().faults() == []
    finally:
        await exporter.stop(drain)


def keys(sink: HttpSink) -> list[str]:
    return [request.headers["Idempotency-Key"] for request in sink.received]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_split", [False, True])
async def test_every_batch_arrives_once_and_the_queue_is_empty_then(mode: Mode, is_split: bool, tmp_path: Path) -> None:
    pipeline = PipelineOptions(is_enabled=is_split, preparers=2, senders=2)
    async with http_sink() as sink:
        options = ExporterOptions(pipeline=pipeline)
        async with exporting(sink.url, tmp_path / "q", mode=mode, options=options) as (exporter, feed):
            for number in range(50):
                await feed.push(batch(number))
            await until(lambda: len(sink.received) == 50 and feed.queue.figures().batches == 0)
        assert sorted(keys(sink)) == sorted(f"b{number}" for number in range(50))
        assert {request.path for request in sink.received} == {"/v1/metrics"}
        assert exporter.delivery.counts["sent_items"] == 200


@pytest.mark.parametrize("answer", [500, 503, (429, "slow down", {"Retry-After": "0.05"}), 408, 502])
async def test_what_may_be_taken_later_is_tried_until_it_is(
    answer: int | tuple[int, str, dict[str, str]], tmp_path: Path
) -> None:
    async with http_sink(HttpSink(answers=[answer] * 12)) as sink, exporting(sink.url, tmp_path / "q") as (_, feed):
        for number in range(3):
            await feed.push(batch(number))
        await until(lambda: sorted(keys(sink)) == ["b0", "b1", "b2"])
        assert len(feed.dead_letters.ids()) == 0


async def test_a_destination_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    patience = (429, "slow down", {"Retry-After": "1"})
    async with http_sink(HttpSink(answers=[patience])) as sink, exporting(sink.url, tmp_path / "q") as (exporter, feed):
        began = asyncio.get_running_loop().time()
        await feed.push(batch(0))
        await until(lambda: len(sink.attempts) == 1)
        await feed.push(batch(1))
        await until(lambda: len(sink.received) == 2)
        assert asyncio.get_running_loop().time() - began >= 0.99
        assert exporter.delivery.breaker.state is State.CLOSED
        assert exporter.delivery.failures == {ErrorClass.RATE_LIMIT: 1}


@pytest.mark.parametrize(("status", "error"), [(405, "client_error"), (401, "auth"), (404, "client_error"), (302, "?")])
async def test_what_is_refused_for_good_is_a_dead_letter_and_the_rest_goes_on(
    status: int, error: str, tmp_path: Path
) -> None:
    async with http_sink(HttpSink(answers=[(status, "no such thing", {})] * 3)) as sink:
        options = ExporterOptions(workers=1, delivery=DeliveryOptions(backoff=QUICK, max_attempts=3))
        async with exporting(sink.url, tmp_path / "q", options=options) as (exporter, feed):
            await feed.push(batch(0))
            await until(lambda: len(feed.dead_letters.ids()) == 1)
            await feed.push(batch(1))
            await until(lambda: keys(sink) == ["b1"])
            [letter] = feed.dead_letters.letters()
            assert letter.attempts == 3
            assert letter.error == error or error == "?"
            assert "no such thing" in letter.message
            again = feed.dead_letters.batch(letter.id)
            assert (again.key, again.body, again.items) == ("b0", batch(0).body, 4)
            await until(lambda: feed.queue.figures().batches == 0)
            assert exporter.delivery.breaker.state is State.CLOSED
            feed.dead_letters.remove(letter.id)
            assert feed.dead_letters.ids() == []


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_redirect_that_would_lose_the_batch_is_a_refusal_and_no_yes(status: int, tmp_path: Path) -> None:
    """nginx in front of a collector answers http with 301 to https: a client follows with a GET, and gets a 200."""
    async with http_sink() as moved:
        sink = HttpSink(answers=[(status, "", {"Location": f"{moved.url}/v1/metrics"})] * 3)
        async with http_sink(sink), exporting(sink.url, tmp_path / "q") as (exporter, feed):
            await feed.push(batch(0))
            await until(lambda: len(feed.dead_letters.ids()) == 1)
            [letter] = feed.dead_letters.letters()
            assert letter.error == "client_error"
            assert f"HTTP {status}" in letter.message
            assert moved.url in letter.message
            assert exporter.delivery.counts["sent"] == 0


@pytest.mark.parametrize("status", [307, 308])
async def test_redirect_that_keeps_the_batch_is_followed(status: int, tmp_path: Path) -> None:
    async with http_sink() as moved:
        sink = HttpSink(answers=[(status, "", {"Location": f"{moved.url}/v1/metrics"})])
        async with http_sink(sink), exporting(sink.url, tmp_path / "q") as (_, feed):
            await feed.push(batch(0))
            await until(lambda: keys(moved) == ["b0"])
            assert parsed(Kind.METRICS, moved.received[0].body) == metrics(1, 1, 1, 4)


async def test_a_batch_that_is_too_large_is_halved_until_it_fits_and_the_size_is_remembered(tmp_path: Path) -> None:
    async with http_sink(HttpSink(size_max=120)) as sink, exporting(sink.url, tmp_path / "q") as (exporter, feed):
        await feed.push(batch(0, points=64))
        await until(lambda: feed.queue.figures().batches == 0)
        requests = [parsed(Kind.METRICS, request.body) for request in sink.received]
        found = [request.resource_metrics[0].scope_metrics[0].metrics[0] for request in requests]
        points = [point.as_int for metric in found for point in metric.gauge.data_points]
        assert points == list(range(64))
        assert len(set(keys(sink))) == len(keys(sink)) > 1
        ceiling = exporter.delivery.ceiling_bytes
        assert ceiling is not None
        tried = len(sink.attempts)
        await feed.push(batch(1, points=64))
        await until(lambda: feed.queue.figures().batches == 0)
        assert len(sink.attempts) - tried < tried
        assert sum(count_items(Kind.METRICS, request) for request in requests) == 64


async def test_of_a_batch_with_something_wrong_in_it_only_that_is_a_dead_letter(tmp_path: Path) -> None:
    wrong = metrics(1, 1, 1, 7)
    wrong.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[4].attributes.add(key="poison")
    whole = ExportBatch(Kind.METRICS, wrong.SerializeToString(), 7, CLOCK.now_us(), "b0")
    async with http_sink(HttpSink(refused=b"poison")) as sink, exporting(sink.url, tmp_path / "q") as (_, feed):
        await feed.push(whole)
        await until(lambda: feed.queue.figures().batches == 0)
        [letter] = feed.dead_letters.letters()
        assert (letter.items, letter.error) == (1, "client_error")
        requests = [parsed(Kind.METRICS, request.body) for request in sink.received]
        assert sum(count_items(Kind.METRICS, request) for request in requests) == 6


async def test_one_item_that_is_too_large_is_a_dead_letter(tmp_path: Path) -> None:
    async with http_sink(HttpSink(size_max=1)) as sink, exporting(sink.url, tmp_path / "q") as (_, feed):
        await feed.push(batch(0, points=2))
        await until(lambda: len(feed.dead_letters.ids()) == 2 and feed.queue.figures().batches == 0)


async def test_an_outage_opens_the_breaker_loses_nothing_and_everything_follows_when_it_is_over(tmp_path: Path) -> None:
    async with http_sink() as sink:
        port = sink.port
    async with exporting(sink.url, tmp_path / "q", mode="disk") as (exporter, feed):
        for number in range(30):
            await feed.push(batch(number))
        await until(lambda: exporter.delivery.breaker.state is not State.CLOSED)
        assert exporter.delivery.failures[ErrorClass.NETWORK] >= 5
        async with http_sink(sink, port=port):
            await until(lambda: len(set(keys(sink))) == 30)
            await until(lambda: feed.queue.figures().batches == 0)
        assert exporter.delivery.breaker.opened >= 1
        assert len(keys(sink)) == 30


async def test_a_destination_that_hangs_times_out_and_is_tried_again(tmp_path: Path) -> None:
    sink = HttpSink(hang=asyncio.Event())
    async with http_sink(sink), exporting(sink.url, tmp_path / "q", timeout=0.2) as (exporter, feed):
        await feed.push(batch(0))
        await until(lambda: exporter.delivery.failures[ErrorClass.TIMEOUT] >= 2)
        assert sink.hang is not None
        sink.hang.set()
        await until(lambda: feed.queue.figures().batches == 0)


async def test_a_name_that_does_not_resolve_and_bytes_that_are_no_http_are_network_errors(tmp_path: Path) -> None:
    async with exporting("http://no-such-host.invalid", tmp_path / "a") as (exporter, feed):
        await feed.push(batch(0))
        await until(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 1)

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x00\xff this is no HTTP\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, exporting(f"http://127.0.0.1:{port}", tmp_path / "b") as (exporter, feed):
        await feed.push(batch(0))
        await until(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 1)
        assert feed.queue.figures().batches == 1
    async with server, exporting(f"https://127.0.0.1:{port}", tmp_path / "c") as (exporter, feed):
        await feed.push(batch(0))
        await until(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 1)


async def test_secrets_of_a_url_are_in_no_error_no_log_and_no_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with http_sink(HttpSink(answers=[405] * 3)) as sink:
        url = f"http://me:hunter2@127.0.0.1:{sink.port}/in?token=hunter3"
        async with exporting(url, tmp_path / "q") as (exporter, feed):
            await feed.push(batch(0))
            await until(lambda: len(feed.dead_letters.ids()) == 1)
            assert sink.attempts[0].headers["Authorization"].startswith("Basic ")
            assert sink.attempts[0].path == "/in/v1/metrics"  # the query stays behind it
            [letter] = feed.dead_letters.letters()
    delivery = DeliveryOptions(backoff=QUICK, breaker_threshold=2)
    async with exporting(url, tmp_path / "away", delivery=delivery) as (exporter, feed):
        await feed.push(batch(0))
        await until(lambda: exporter.delivery.breaker.opened > 0)
        assert "***@127.0.0.1" in exporter.delivery.last_error
    assert "hunter" not in exporter.delivery.last_error + letter.message + caplog.text


@pytest.mark.parametrize("is_split", [False, True])
async def test_workers_go_on_after_a_bug(
    is_split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = PipelineOptions(is_enabled=is_split, senders=1, concurrent_sends=1)
    options = ExporterOptions(DeliveryOptions(backoff=QUICK), pipeline, workers=1, paces=Paces(bug_seconds=0.01))
    async with http_sink() as sink, exporting(sink.url, tmp_path / "q", options=options) as (_, feed):
        confirm, bugs = feed.confirm, [RuntimeError("a bug")] * 3

        async def confirm_at_last(claim: Claim) -> None:
            if bugs:
                raise bugs.pop()
            await confirm(claim)

        monkeypatch.setattr(feed, "confirm", confirm_at_last)
        await feed.push(batch(0))
        await until(lambda: feed.queue.figures().batches == 0)
    assert caplog.text.count("begins anew after a bug") == 3
    assert set(keys(sink)) == {"b0"}


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_stopping_process_could_not_send_is_there_after_the_next_start(mode: Mode, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with exporting(f"http://127.0.0.1:{port}", tmp_path / "q", mode=mode) as (_, feed):
        for number in range(20):
            await feed.push(batch(number))
    async with exporting(f"http://127.0.0.1:{port}", tmp_path / "q", mode=mode) as (exporter, feed):
        await until(lambda: exporter.delivery.failures[ErrorClass.NETWORK] >= 1)
    sink = HttpSink()
    async with http_sink(sink, port=port), exporting(sink.url, tmp_path / "q", mode=mode) as (_, feed):
        await until(lambda: feed.queue.figures().batches == 0)
    assert sorted(keys(sink)) == sorted(f"b{number}" for number in range(20))


async def test_a_graceful_stop_sends_what_it_can_first(tmp_path: Path) -> None:
    async with http_sink(HttpSink(delay_seconds=0.02)) as sink:
        async with exporting(sink.url, tmp_path / "q", drain=20) as (_, feed):
            for number in range(40):
                await feed.push(batch(number))
        assert len(sink.received) == 40
        assert not list((tmp_path / "q").glob("*")) if (tmp_path / "q").exists() else True


@pytest.mark.parametrize("behavior", ["drop_oldest", "drop_newest", "block"])
async def test_a_full_queue_does_what_its_policy_says_and_counts_it(behavior: str, tmp_path: Path) -> None:
    sink = HttpSink(hang=asyncio.Event())
    feed_options = QueueFeedOptions(full_behavior=behavior, block_seconds=0.3)  # type: ignore[arg-type]
    options = ExporterOptions(workers=1)
    async with (
        http_sink(sink),
        exporting(
            sink.url,
            tmp_path / "q",
            options=options,
            feed_options=feed_options,
            limits=Limits(3, 1_000_000),
            timeout=60,
        ) as (_, feed),
    ):
        await feed.push(batch(0))
        await until(lambda: len(sink.attempts) == 1)
        await feed.push(batch(1))
        await feed.push(batch(2))
        if behavior == "drop_oldest":
            await feed.push(batch(3))
            assert feed.dropped == {"oldest": 1}
            expected = ["b0", "b2", "b3"]
        else:
            with pytest.raises(SendQueueFull):
                await feed.push(batch(3))
            assert feed.dropped == {"newest" if behavior == "drop_newest" else "block_timeout": 1}
            expected = ["b0", "b1", "b2"]
        assert sink.hang is not None
        sink.hang.set()
        await until(lambda: keys(sink) == expected)


async def test_blocked_pushes_go_on_when_there_is_room(tmp_path: Path) -> None:
    sink = HttpSink(hang=asyncio.Event())
    feed_options = QueueFeedOptions(full_behavior="block", block_seconds=30)
    async with (
        http_sink(sink),
        exporting(sink.url, tmp_path / "q", feed_options=feed_options, limits=Limits(2, 1_000_000)) as (_, feed),
    ):
        pushes = [asyncio.create_task(feed.push(batch(number))) for number in range(8)]
        await until(lambda: len(sink.attempts) == 2)
        assert sink.hang is not None
        sink.hang.set()
        await asyncio.gather(*pushes)
        await until(lambda: len(sink.received) == 8)
        assert feed.dropped == {}


async def test_a_pause_holds_batches_back_and_a_resume_sends_them(tmp_path: Path) -> None:
    async with (
        http_sink() as sink,
        exporting(sink.url, tmp_path / "q", options=ExporterOptions(workers=1)) as (
            exporter,
            feed,
        ),
    ):
        exporter.pause()
        for number in range(3):
            await feed.push(batch(number))
        await until(lambda: len(sink.received) <= 1)
        waiting = feed.queue.figures().batches
        assert waiting >= 2
        exporter.resume()
        await until(lambda: len(sink.received) == 3)


async def test_an_age_limit_makes_dead_letters_and_only_where_it_is_set(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    delivery = DeliveryOptions(backoff=QUICK, max_elapsed_seconds=0.2, is_breaker_enabled=False)
    async with exporting(url, tmp_path / "q", delivery=delivery) as (_, feed):
        await feed.push(batch(0))
        await until(lambda: len(feed.dead_letters.ids()) == 1)
        assert feed.dead_letters.letters()[0].error == "network"


async def test_a_paused_destination_gets_nothing_while_its_exporter_stops(tmp_path: Path) -> None:
    async with http_sink() as sink:
        async with exporting(sink.url, tmp_path / "q", mode="disk", drain=5.0) as (exporter, feed):
            exporter.pause()
            for number in range(5):
                await feed.push(batch(number))
        assert sink.received == []
        async with exporting(sink.url, tmp_path / "q", mode="disk"):
            await until(lambda: len(sink.received) == 5)


async def test_the_account_of_a_send_queue_says_what_became_of_its_batches(tmp_path: Path) -> None:
    once = DeliveryOptions(backoff=QUICK, max_attempts=1)
    async with (
        http_sink(HttpSink(answers=[200, 405, 200])) as sink,
        exporting(sink.url, tmp_path / "q", mode="disk", delivery=once) as (exporter, feed),
    ):
        for number in range(3):
            await feed.push(batch(number))
        await until(lambda: feed.queue.figures().batches == 0)
        account = feed.account()
        assert (account.accepted, account.parts["confirmed"], account.parts["dead"]) == (3, 2, 1)
        exporter.pause()
        await feed.push(batch(3))
        assert (feed.account().accepted, feed.account().parts["waiting"]) == (4, 1)
        url = sink.url
    async with exporting(url, tmp_path / "q", mode="disk") as (_, feed):
        assert feed.account().accepted == 1  # found at the start


async def test_a_batch_that_cannot_be_read_any_more_is_lost_in_the_account(tmp_path: Path) -> None:
    async with http_sink() as sink:
        async with exporting(sink.url, tmp_path / "q", mode="disk") as (exporter, feed):
            exporter.pause()
            for number in range(3):
                await feed.push(batch(number))
        [chunk] = [path for path in (tmp_path / "q").iterdir() if len(path.name) == 16]
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 0xFF
        chunk.write_bytes(data)
        async with exporting(sink.url, tmp_path / "q", mode="disk") as (_, feed):
            await until(lambda: feed.queue.figures().batches == 0)
            account = feed.account()
            assert (account.accepted, account.parts["confirmed"], account.parts["lost"]) == (3, 2, 1)
