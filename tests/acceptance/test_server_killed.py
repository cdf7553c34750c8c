"""The server, and not its store alone, is killed with -9 again and again under pushes, pops, acks and transactions."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fixtures.running_stores import Http, fresh, running, shared_postgres_database
from fixtures.waiting import until, until_told

__all__ = ["shared_postgres_database"]

KILLS = 3
PRODUCERS = 4
CONSUMERS = 3
LOST = (aiohttp.ClientError, TimeoutError, OSError)
"""How a request ends whose server is killed, or comes back from a kill."""


class Work:
    """Producers number their messages and repeat one until it is answered. Consumers ack two of three, and move the
    third to another queue in a transaction. All of them remember what they were told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queue, self.target = fresh("work"), fresh("done")
        self.pushed = dict.fromkeys((f"p{number}" for number in range(PRODUCERS)), 0)
        """By partition, how many were answered."""
        self.seen: dict[str, list[int]] = {name: [] for name in self.pushed}
        """By partition, in the order of first deliveries."""
        self.finished: set[str] = set()
        self.moved: set[str] = set()
        self.faults: list[str] = []
        self.broken = 0
        self._is_pushing = True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(self.url, timeout=aiohttp.ClientTimeout(total=30)) as session:
            options = {"leaseTime": 1, "retryLimit": 1000}
            await self._post(session, "/configure", {"queue": self.queue, "options": options})
            producing = [asyncio.create_task(self._produce(session, name)) for name in self.pushed]
            consuming = [asyncio.create_task(self._consume(session)) for _ in range(CONSUMERS)]
            try:
                yield
                self._is_pushing = False
                await asyncio.gather(*producing)
                await until_told(partial(self._is_done, session), what="everything is finished")
            finally:
                for task in (*producing, *consuming):
                    task.cancel()
                ends = await asyncio.gather(*producing, *consuming, return_exceptions=True)
            assert [end for end in ends if isinstance(end, Exception)] == []

    async def _is_done(self, session: aiohttp.ClientSession) -> bool:
        return not await self._lag(session)

    async def _lag(self, session: aiohttp.ClientSession) -> int:
        async with session.get("/api/v1/consumer-groups") as answer:
            groups: Any = json.loads(await answer.read())
        return sum(group["totalLag"] for group in groups if group["queueName"] == self.queue)

    async def _post(self, session: aiohttp.ClientSession, path: str, body: object) -> Any:
        async with session.post(f"/api/v1{path}", json=body) as answer:
            told = json.loads(await answer.read())
            if answer.status == 503 and told["code"] == "recovering":
                raise aiohttp.ClientConnectionError(told["detail"])
            assert answer.status in (200, 201), told
            return told

    async def _produce(self, session: aiohttp.ClientSession, name: str) -> None:
        while self._is_pushing:
            number = self.pushed[name]
            item = {"queue": self.queue, "partition": name, "payload": number, "transactionId": f"{name}:{number}"}
            try:
                await self._post(session, "/push", {"items": [item]})
            except LOST:
                self.broken += 1
                await asyncio.sleep(0.02)
            else:
                self.pushed[name] += 1

    async def _consume(self, session: aiohttp.ClientSession) -> None:
        path = f"/api/v1/pop/queue/{self.queue}?batch=8&partitions=2&wait=true&timeout=300"
        while True:
            try:
                # What was finished before it is asked for must not come.
                finished = set(self.finished)
                async with session.get(path) as answer:
                    messages: Any = json.loads(await answer.read())["messages"] if answer.status == 200 else []
                for message in messages:
                    self._note(message, finished)
                for message in messages:
                    await self._answer(session, message)
            except LOST:
                self.broken += 1
                await asyncio.sleep(0.02)

    def _note(self, message: dict[str, Any], finished: set[str]) -> None:
        name, number = message["partition"], message["data"]
        if message["transactionId"] in finished:
            self.faults.append(f"{message['transactionId']} was acknowledged and came again")
        if number not in self.seen[name]:
            self.seen[name].append(number)

    async def _answer(self, session: aiohttp.ClientSession, message: dict[str, Any]) -> None:
        name = message["transactionId"]
        ack = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
        if message["data"] % 3:
            [told] = await self._post(session, "/ack", ack)
        else:
            item = {"queue": self.target, "payload": name, "transactionId": name}
            operations = [{"type": "ack", **ack}, {"type": "push", "items": [item]}]
            told = await self._post(session, "/transaction", {"operations": operations})
        if told["success"]:
            self.finished.add(name)
            if not message["data"] % 3:
                self.moved.add(name)


def everything(http: Http, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    from_seq: int | None = 1
    while from_seq is not None:
        page = http.get(f"/api/v1/messages?queue={queue}&fromSeq={from_seq}&limit=1000").json
        found += page["messages"]
        from_seq = page["nextSeq"]
    return found


@pytest.mark.parametrize("store", ["embedded", "postgres"])
async def test_killed_server_loses_doubles_and_reorders_nothing(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    chance = random.Random(store)
    server = running(store, request, tmp_path)
    with server:
        work = Work(server.url)
        async with work.running():
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.2, 0.8))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            before = len(work.finished)
            await until(lambda: len(work.finished) > before, what="work goes on after the last kill")
        with Http(server.url) as http:
            stored, moved = everything(http, work.queue), everything(http, work.target)
            assert http.pop(work.queue, batch=100, partitions=10) == [], "everything was finished"
    assert work.faults == []
    assert work.broken > KILLS, "the kills were noticed by nobody"
    for name, count in work.pushed.items():
        assert count > 0
        assert [one["data"] for one in stored if one["partition"] == name] == list(range(count))
        assert work.seen[name] == list(range(count))
    names = [one["data"] for one in moved]
    assert len(names) == len(set(names)), "a transaction happened twice"
    assert set(names) >= work.moved
    third = {f"{name}:{number}" for name, count in work.pushed.items() for number in range(0, count, 3)}
    assert set(names) == third, "finished, and not moved on"
