"""A record rots inside a parcel, and the worker without Spark reads it: an error with the numbers, or said aloud."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fixtures.running_stores import Http, wait_until
from forebay.client import AsyncClient, DispatchWorker, ParcelWork
from forebay.testing.running_server import RunningServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data") as running:
        yield running


def segment(server: RunningServer) -> Path:
    [path] = [path for path in (server.data_dir / "queues" / "1").rglob("*.data") if path.stat().st_size]
    return path


def filled(server: RunningServer, http: Http) -> int:
    """Three records of the queue `orders`; returns where the second one begins."""
    ends = []
    for payloads in (["a"], ["b", "c"], ["d"]):
        http.push("orders", *payloads, partition="p")
        ends.append(-(-len(segment(server).read_bytes().rstrip(b"\0")) // 8) * 8)
    return ends[0]


def a_flow(name: str, **source: Any) -> dict[str, Any]:
    given = {"queue": "orders", "parcelMessages": 4, "parcelWaitSeconds": 0.05, **source}
    step = {"action": "look", "actionClass": f"{name}.Look", "retry": {"maxAttempts": 1}}
    return {"source": given, "steps": [step]}


async def worked(url: str, flow: str, ends_in: str) -> list[Any]:
    """What a handler got of the flow's one parcel, once that is over."""
    seen: list[Any] = []

    async def look(work: ParcelWork) -> None:
        async for message in work.messages():
            seen.append(message["data"])  # noqa: PERF401 -- also what came before it raises

    async with AsyncClient(url) as client:
        worker = DispatchWorker(client, {f"{flow}.*": look}, wait_seconds=1)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            while [one["state"] for one in await client.parcels(flow=flow)] != [ends_in]:
                await asyncio.sleep(0.05)
        worker.stop()
        await running
    return seen


def test_damaged_record_in_a_parcel_is_an_error_or_is_left_out_and_reported(server: RunningServer) -> None:
    with closing(Http(server.url)) as http:
        start = filled(server, http)
        for name, source in (("strict", {}), ("lenient", {"failOnDataLoss": False})):
            http.send("PUT", f"/api/v1/dispatch/flows/{name}", a_flow(name, **source))
        wait_until(lambda: len(http.get("/api/v1/parcels").json["parcels"]) == 2)
    server.stop()
    data = bytearray(segment(server).read_bytes())
    data[start + 60] ^= 0xFF
    segment(server).write_bytes(data)
    server.start()
    # The first one to read finds the damage, behind what it could read.
    assert asyncio.run(worked(server.url, "strict", ends_in="ERROR")) == ["a", "d"]
    assert asyncio.run(worked(server.url, "lenient", ends_in="COMPLETE")) == ["a", "d"]
    with closing(Http(server.url)) as http:
        found = {parcel["flow"]: parcel for parcel in http.get("/api/v1/parcels").json["parcels"]}
        error = "queue 'orders': messages 2-3 are gone: they cannot be read any more"
        assert found["strict"]["state"] == "ERROR"
        assert error in found["strict"]["error"]
        history = http.get(f"/api/v1/parcels/{found['lenient']['did']}").json
        assert [event["text"] for event in history["events"] if event["event"] == "LOST"] == [error]
        assert http.get("/api/v1/dispatch/flows/lenient").json["lost"] == 2
        assert http.get("/api/v1/dispatch/flows/strict").json["lost"] == 0
        wait_until(lambda: 'forebay_parcel_messages_lost_total{flow="lenient"} 2' in http.get("/metrics").body.decode())
    server.stop()
    line = f"flow lenient: parcel {found['lenient']['did']} went on without messages that are gone: {error}"
    assert server.errors().count(line) == 1
