"""What a real Prometheus refuses of a remote write request: the rest of the request is stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.telemetry import now_ms
from forebay.clock import SystemClock
from forebay.export.batch import ExportBatch
from forebay.export.destination import Receipt
from forebay.export.destinations.refused_samples import REFUSALS_MAX, REQUESTS_MAX, layers
from forebay.export.destinations.remote_write import RemoteWriteDestination
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest
from forebay.testing.servers import PrometheusServer

START_MS = now_ms() - 60_000

Told = tuple[int, str, dict[str, str]]
REFUSAL: Told = (400, "out of order sample", {})
TOO_OLD: Told = (500, "too old sample", {})

Sample = tuple[str, int, float]
"""Series, time and value."""


def request(name: str, samples: Sequence[Sample]) -> ExportBatch:
    write = WriteRequest()
    for series, at_ms, value in samples:
        one = write.timeseries.add()
        one.labels.add(name="__name__", value=name)
        one.labels.add(name="series", value=series)
        one.samples.add(value=value, timestamp=START_MS + at_ms)
    return ExportBatch(Kind.REMOTE_WRITE, write.SerializeToString(), len(samples), 1)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RemoteWriteDestination]:
    destination = RemoteWriteDestination("p", HttpOptions(url, timeout_seconds=30), SystemClock())
    await destination.open()
    try:
        yield destination
    finally:
        await destination.close()


async def sent(destination: RemoteWriteDestination, batch: ExportBatch) -> Receipt:
    return await destination.send(destination.prepare(batch))


def stored(prometheus: PrometheusServer, name: str) -> set[Sample]:
    found = prometheus.samples(name)
    return {(json.loads(labels)["series"], at - START_MS, value) for labels, of in found.items() for at, value in of}


async def test_one_old_and_one_changed_sample_do_not_take_the_others_with_them(prometheus: PrometheusServer) -> None:
    first = [("a", 10, 1.0), ("b", 10, 1.0)]
    second = [("a", 5, 9.0), ("b", 10, 9.0), ("a", 20, 2.0), *((f"c{n}", 10, float(n)) for n in range(50))]
    async with opened(prometheus.write_url) as destination:
        assert (await sent(destination, request("refused_few", first))).rejected == 0
        receipt = await sent(destination, request("refused_few", second))
    assert receipt.rejected == 2
    assert "out of order" in receipt.message or "duplicate" in receipt.message
    assert stored(prometheus, "refused_few") == {*first, *second} - {("a", 5, 9.0), ("b", 10, 9.0)}


async def test_batches_whose_confirmation_was_lost_are_sent_again_without_harm(prometheus: PrometheusServer) -> None:
    batches = [
        request("refused_again", [(f"s{n}", at, float(at)) for at in (start, start + 1) for n in range(500)])
        for start in (0, 2, 4)
    ]
    async with opened(prometheus.write_url) as destination:
        for batch in batches:
            assert (await sent(destination, batch)).rejected == 0
        before = stored(prometheus, "refused_again")
        rejected = [(await sent(destination, batch)).rejected for batch in batches]
    # Of the last batch the newest samples are taken as what they are, the same ones again.
    assert rejected == [1000, 1000, 500]
    assert stored(prometheus, "refused_again") == before
    assert len(before) == 3000


async def test_layers_keep_the_order_of_each_series() -> None:
    write = WriteRequest()
    for name, times in (("a", [3, 1]), ("b", [5]), ("a", [2])):
        one = write.timeseries.add()
        one.labels.add(name="__name__", value=name)
        for at in times:
            one.samples.add(value=1, timestamp=at)
    found = [[(one.labels[0].value, one.samples[0].timestamp) for one in layer] for layer in layers(write)]
    assert found == [[("a", 1), ("b", 5)], [("a", 2)], [("a", 3)]]


async def test_what_is_refused_as_a_whole_takes_few_requests() -> None:
    async with http_sink(HttpSink(answers=[REFUSAL] * 100)) as sink, opened(sink.url) as destination:
        receipt = await sent(destination, request("x", [(f"s{n}", 1, 1.0) for n in range(5000)]))
    assert receipt.rejected == 5000
    assert len(sink.attempts) == 1 + REFUSALS_MAX


async def test_search_has_an_end_and_the_batch_is_not_given_up_quietly() -> None:
    answers: list[int | Told] = [REFUSAL, REFUSAL, 200, *[REFUSAL] * 2 * REQUESTS_MAX]
    async with http_sink(HttpSink(answers=answers)) as sink, opened(sink.url) as destination:
        with pytest.raises(SendFailed, match=f"{REQUESTS_MAX} requests") as failed:
            await sent(destination, request("x", [(f"s{n}", 1, 1.0) for n in range(2 * REQUESTS_MAX)]))
    assert failed.value.error is ErrorClass.CLIENT_ERROR
    assert len(sink.attempts) == 1 + REQUESTS_MAX


async def test_outage_between_two_pieces_is_an_outage() -> None:
    async with http_sink(HttpSink(answers=[REFUSAL, REFUSAL, 200, 503])) as sink, opened(sink.url) as destination:
        with pytest.raises(SendFailed) as failed:
            await sent(destination, request("x", [(f"s{n}", 1, 1.0) for n in range(8)]))
    assert failed.value.error is ErrorClass.SERVER_ERROR


async def test_sample_too_old_is_refused_for_good_though_the_status_is_500() -> None:
    async with http_sink(HttpSink(answers=[TOO_OLD] * 2)) as sink, opened(sink.url) as destination:
        assert (await sent(destination, request("x", [("s", 1, 1.0)]))).rejected == 1
