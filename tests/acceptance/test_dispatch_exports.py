"""Results of a flow reach a destination that is away, through a killed server, and its parcels know. Without Spark."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures.http_sink import HttpSink, http_sink
from fixtures.waiting import until, until_told
from forebay.client import AsyncClient, DispatchWorker, ParcelOutcome, ParcelWork
from forebay.testing.running_server import RunningServer

SETTINGS = """
destinations:
  - name: sink
    type: http
    url: http://127.0.0.1:{port}/ingest
    format: envelopes
    queue: {{retry_interval: 50ms, max_retry_delay: 200ms, circuit_breaker: {{reset_timeout: 200ms}}}}
"""
OUTBOX = ".export.sink"
MESSAGES = 60
FLOWS = ("clicks", "views")


@pytest.fixture(params=["embedded", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return "embedded"
    return str(request.getfixturevalue("postgres_database"))


def server(folder: Path, store: str, port: int) -> RunningServer:
    file = folder / "forebay.yaml"
    file.write_text(SETTINGS.format(port=port))
    return RunningServer(folder / "data", store=store, arguments=("-c", str(file)))


async def doubled(work: ParcelWork) -> ParcelOutcome:
    """What the flow does: each number twice as large, to the destination."""
    numbers = [message["data"] async for message in work.messages()]
    payloads = [json.dumps({"n": 2 * number}).encode() for number in numbers]
    sent = await work.export("sink", pa.table({"payload": pa.array(payloads, pa.binary())}))
    return work.outcome(rows_in=len(numbers), rows_out=sent)


async def define(client: AsyncClient) -> None:
    for flow in FLOWS:
        step = {"action": "double", "actionClass": "numbers.Double"}
        source = {"queue": f"{flow}-in", "parcelMessages": 10, "parcelWaitSeconds": 0.05}
        await client.define_flow(flow, {"source": source, "steps": [step], "spec": {"sink": {"export": "sink"}}})


async def work_off(client: AsyncClient, parcels: int) -> None:
    """A worker completes so many parcels, those of one step together."""
    worker = DispatchWorker(client, {"numbers.*": doubled}, same_step=True, wait_seconds=1)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.completed >= parcels)
    worker.stop()
    await running


async def _is(found: bool) -> bool:
    return found


async def states(client: AsyncClient) -> Counter[tuple[str, str]]:
    return Counter((one["state"], one["stepState"]) for one in await client.parcels(limit=1000))


def received(sink: HttpSink) -> dict[str, list[int]]:
    """By flow, the numbers in the order in which they came first, without those that came again."""
    lanes: dict[str, dict[int, None]] = {}
    for request in sink.received:
        for envelope in json.loads(request.body):
            assert envelope["queue"] == OUTBOX
            lanes.setdefault(envelope["partition"], {})[envelope["data"]["n"]] = None
    return {lane: list(numbers) for lane, numbers in lanes.items()}


async def test_parcels_are_exporting_until_the_destination_has_their_rows(tmp_path: Path, store: str) -> None:
    async with http_sink() as sink:
        port = sink.port
    running = server(tmp_path, store, port)
    await asyncio.to_thread(running.start)
    count = len(FLOWS) * MESSAGES // 10
    try:
        async with AsyncClient(running.url) as client:
            assert (await client.get("/api/v1/exports"))["exports"] == [], "nothing rests in the list"
            await define(client)
            for flow in FLOWS:
                await client.push_many(f"{flow}-in", range(MESSAGES))
            await work_off(client, count)
            assert await states(client) == {("IN_FLIGHT", "EXPORTING"): count}
            assert [queue["name"] for queue in await client.queues()] == ["clicks-in", "views-in"]
            assert OUTBOX in [queue["name"] for queue in await client.queues(internal=True)]
        await asyncio.to_thread(running.kill)
        await asyncio.to_thread(running.start)
        async with AsyncClient(running.url) as client:
            assert await states(client) == {("IN_FLIGHT", "EXPORTING"): count}
            assert sum([flow["exporting"] for flow in await client.flows()]) == count
            async with http_sink(sink, port=port):

                async def is_complete() -> bool:
                    return await states(client) == {("COMPLETE", "COMPLETE"): count}

                await until_told(is_complete)
                numbers = [2 * number for number in range(MESSAGES)]
                assert received(sink) == dict.fromkeys(FLOWS, numbers)
            await check_history(client)
            [export] = (await client.get("/api/v1/exports"))["exports"]
            assert (export["name"], export["source"], export["waiting"]) == (OUTBOX, f"{OUTBOX}@export", 0)
    finally:
        await asyncio.to_thread(running.stop)


async def check_history(client: AsyncClient) -> None:
    for parcel in await client.parcels(limit=1000):
        shown = await client.parcel(parcel["did"])
        assert [event["event"] for event in shown["events"]] == ["ACTION", "EXPORTING", "EXPORTED"]


@pytest.mark.slow
async def test_killed_at_any_moment_every_parcel_is_exported_in_the_end(tmp_path: Path, store: str) -> None:
    rounds = 4
    async with http_sink(HttpSink(delay_seconds=0.02)) as sink:
        running = server(tmp_path, store, sink.port)
        await asyncio.to_thread(running.start)
        try:
            async with AsyncClient(running.url) as client:
                await define(client)
            for number in range(rounds):
                async with AsyncClient(running.url) as client:
                    for flow in FLOWS:
                        await client.push_many(f"{flow}-in", range(number * MESSAGES, (number + 1) * MESSAGES))
                    await work_off(client, 1)
                await asyncio.to_thread(running.kill)
                await asyncio.to_thread(running.start)
            expected = {2 * number for number in range(rounds * MESSAGES)}
            async with AsyncClient(running.url) as client:

                async def is_complete() -> bool:
                    await DispatchWorker(client, {"numbers.*": doubled}, same_step=True).run(once=True)
                    found = await client.parcels(limit=1000)
                    is_cut = sum(parcel["messages"] for parcel in found) == len(FLOWS) * rounds * MESSAGES
                    return is_cut and all(parcel["state"] == "COMPLETE" for parcel in found)

                await until_told(is_complete, 120)
            assert {flow: set(numbers) for flow, numbers in received(sink).items()} == dict.fromkeys(FLOWS, expected)
        finally:
            await asyncio.to_thread(running.stop)


async def test_an_outbox_is_paused_before_it_is_there_and_resumed(tmp_path: Path) -> None:
    async with http_sink() as sink:
        running = server(tmp_path, "embedded", sink.port)
        await asyncio.to_thread(running.start)
        try:
            async with AsyncClient(running.url) as client:
                await client._json("POST", f"/api/v1/exports/{OUTBOX}/pause", {})
                await define(client)
                await client.push_many("clicks-in", range(10))
                await work_off(client, 1)

                async def is_there() -> bool:
                    return bool((await client.get("/api/v1/exports"))["exports"])

                await until_told(is_there)
                [export] = (await client.get("/api/v1/exports"))["exports"]
                assert (export["paused"], sink.attempts) == (True, [])
                assert await states(client) == {("IN_FLIGHT", "EXPORTING"): 1}
                await client._json("POST", f"/api/v1/exports/{OUTBOX}/resume", {})

                async def is_complete() -> bool:
                    return await states(client) == {("COMPLETE", "COMPLETE"): 1}

                await until_told(is_complete)
                assert received(sink) == {"clicks": [2 * number for number in range(10)]}
        finally:
            await asyncio.to_thread(running.stop)
