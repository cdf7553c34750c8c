"""Records for a step on their way out: what is sent, in how many requests, and what is refused before."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

import pytest

from forebay.client import RecordsStarted, Refused, StepRecord
from forebay.client.step_records import REQUEST_RECORDS_MAX, RecordSender
from forebay.client.transport import Transport

pytestmark = pytest.mark.asyncio


class Server:
    """Takes so many records in a request."""

    def __init__(self, records_max: int = REQUEST_RECORDS_MAX) -> None:
        self.records_max = records_max
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        records = json.loads(body)["records"]
        if len(records) > self.records_max:
            raise Refused(413, "too large")
        self.paths.add(f"{method} {path}")
        self.bodies.append(body)
        told = {"success": True, "parcels": [f"d{len(self.bodies)}"], "records": len(records), "repeated": 1}
        return 201, json.dumps(told).encode()

    async def send(self, *records: StepRecord) -> RecordsStarted:
        return await RecordSender(cast(Transport, self), "a/b", "geo").send(records)


def record(number: int, payload: Any = None) -> StepRecord:
    return StepRecord("d", f"k{number}", {"n": number} if payload is None else payload)


async def test_payloads_are_sent_byte_for_byte() -> None:
    server = Server()
    await server.send(record(1, b'{"n": 1.10,"at":"NaN"}'), record(2, {"exact": Decimal("1.10"), "nothing": None}))
    assert server.paths == {"POST /api/v1/dispatch/flows/a%2Fb/records"}
    expected = (
        b'{"step":"geo","records":[{"did":"d","key":"k1","payload":{"n": 1.10,"at":"NaN"}},'
        b'{"did":"d","key":"k2","payload":{"exact":1.10,"nothing":null}}]}'
    )
    assert server.bodies == [expected]


async def test_many_records_are_several_requests_in_order_and_one_result() -> None:
    server = Server()
    started = await server.send(*map(record, range(2 * REQUEST_RECORDS_MAX + 1)))
    assert [len(json.loads(body)["records"]) for body in server.bodies] == [REQUEST_RECORDS_MAX, REQUEST_RECORDS_MAX, 1]
    assert started == RecordsStarted(("d1", "d2", "d3"), 2 * REQUEST_RECORDS_MAX + 1, 3)


async def test_large_records_are_several_requests() -> None:
    server = Server()
    await server.send(*(record(number, {"text": "x" * (9 << 20)}) for number in range(4)))
    assert [len(json.loads(body)["records"]) for body in server.bodies] == [3, 1]


async def test_what_a_server_takes_no_more_of_is_halved() -> None:
    server = Server(records_max=2)
    started = await server.send(*map(record, range(5)))
    assert [key["key"] for body in server.bodies for key in json.loads(body)["records"]] == [f"k{n}" for n in range(5)]
    assert started.records == 5
    with pytest.raises(Refused):
        await Server(records_max=0).send(record(1))


@pytest.mark.parametrize("payload", [b"7", b"{", b"\xff", b'{"a":"\xff"}', [1], 7, {"n": float("nan")}])
async def test_what_is_no_json_object_is_refused_before_anything_is_sent(payload: Any) -> None:
    server = Server()
    with pytest.raises(ValueError, match="JSON"):
        await server.send(record(1), record(2, payload))
    assert server.bodies == []
