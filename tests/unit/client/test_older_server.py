"""A server that is older than its client, as one of several may be during an upgrade: nothing is lost on the way."""

from __future__ import annotations

import asyncio
import json

from fixtures.served_app import on_uvloop, served
from forebay.api.exchange import Request, Response, refusal
from forebay.api.memory import Memory
from forebay.api.problems import not_found
from forebay.client import AsyncClient


class OlderServer:
    """It answers with messages one by one whatever is asked for, and knows of no leases that end as a whole."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.asked: list[str] = []
        self.acknowledged: list[str] = []

    async def answer(self, request: Request) -> Response:
        path = request.raw_path.decode()
        self.asked.append(path)
        if path == "/api/v1/ack/batch":
            entries = json.loads(await request.body())["acknowledgments"]
            self.acknowledged += [entry["transactionId"] for entry in entries]
            return Response(200, json.dumps([{"success": True} for _ in entries]).encode())
        if path.startswith("/api/v1/pop/"):
            messages = [
                {"transactionId": name, "partitionId": "1-1", "partition": "p", "createdAt": "now", "data": {"n": name}}
                for name in "ab"
            ]
            numbered = [{**message, "seq": seq, "attempts": 1} for seq, message in enumerate(messages)]
            return Response(200, json.dumps({"queue": "q", "leaseId": "lease", "messages": numbered}).encode())
        return refusal(not_found("nothing here"))


@on_uvloop
async def test_messages_of_an_older_server_are_understood_and_answered_one_by_one() -> None:
    server = OlderServer()
    async with served(server) as place, AsyncClient(f"http://127.0.0.1:{place.port}") as client:
        found = await client.pop("q", batch=2)
        assert [(m.queue, m.partition, m.transaction_id, m.seq, m.lease_id, m.data) for m in found] == [
            ("q", "p", "a", 0, "lease", {"n": "a"}),
            ("q", "p", "b", 1, "lease", {"n": "b"}),
        ]
        assert await client.ack(found)
    assert server.asked[1:] == ["/api/v1/lease/lease/complete", "/api/v1/ack/batch"]
    assert server.acknowledged == ["a", "b"]


@on_uvloop
async def test_deliveries_that_are_answered_at_the_same_time_are_answered_by_an_older_server_too() -> None:
    server = OlderServer()
    async with served(server) as place, AsyncClient(f"http://127.0.0.1:{place.port}") as client:
        found = [await client.pop("q", batch=2) for _ in range(5)]
        assert await asyncio.gather(*[client.ack(delivery) for delivery in found]) == [True] * 5
    assert server.acknowledged == ["a", "b"] * 5


@on_uvloop
async def test_what_is_not_a_whole_delivery_is_answered_one_by_one() -> None:
    server = OlderServer()
    async with served(server) as place, AsyncClient(f"http://127.0.0.1:{place.port}") as client:
        found = await client.pop("q", batch=2)
        assert await client.ack(found[0])
        assert await client.ack([found[0], found[0]])
        assert await client.ack(found, "failed")
    assert set(server.asked[1:]) == {"/api/v1/ack/batch"}
