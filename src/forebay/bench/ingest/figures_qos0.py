"""QoS 0 beside one transaction per push."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterator

from forebay.bench.broker import insert_app
from forebay.bench.broker.prepared import pushes
from forebay.bench.broker.servers import AsgiServer, ForebayServer
from forebay.bench.harness import Figure, Measure, at_least, at_most, for_information, rate
from forebay.bench.ingest.outages import metric, wait_until_drained
from forebay.bench.ingest.plan import OTHER_TASKS, TASKS, Plan
from forebay.client import AsyncClient

RATE = "events/s"
BUFFER_MS = BUFFER_MAX = 100
EVENTS_PER_SECOND = 1000
VISIBLE_MS_MAX = 200.0


def figures(server: ForebayServer, database_url: str, plan: Plan) -> Iterator[Figure]:
    url = server.url
    writes: list[float] = []

    def ours(tasks: int, events: int) -> Measure:
        def measure() -> float:
            before = metric(url, "forebay_buffer_store_writes_total", "qos0")
            found = rate(events, lambda: asyncio.run(_push(url, events, tasks)))
            wait_until_drained(url)
            if tasks == TASKS:
                writes.append(metric(url, "forebay_buffer_store_writes_total", "qos0") - before)
            return found

        return measure

    beside = "one transaction per push"
    note = "ours through the client, which merges pushes that wait; theirs prepared requests, as many connections"
    with AsgiServer("forebay.bench.broker.insert_app:app", {insert_app.URL_VARIABLE: database_url}) as by_hand:
        theirs = pushes(by_hand.url, 1, TASKS, plan.events, is_forebay=False)
        name = f"QoS 0: single events by {TASKS} tasks"
        yield at_least(10, name, RATE, ours(TASKS, plan.events), beside, theirs, rounds=plan.rounds, note=note)
        for tasks in OTHER_TASKS:
            events = plan.events if tasks > TASKS else plan.events // 10
            theirs = pushes(by_hand.url, 1, tasks, events, is_forebay=False)
            name = f"QoS 0: single events by {tasks} task{'s' if tasks > 1 else ''}"
            yield for_information(name, RATE, ours(tasks, events), beside, theirs, rounds=plan.rounds, note=note)
    fewest = statistics.median(writes)
    yield at_most(
        0.01,
        f"QoS 0: store writes of {plan.events:,} events",
        "writes",
        lambda: fewest,
        "one transaction per push",
        lambda: float(plan.events),
        rounds=1,
    )
    yield at_most(
        1,
        "QoS 0: mean time from push to a waiting consumer",
        "ms",
        lambda: asyncio.run(_visibility_ms(url, plan.visible_seconds)),
        f"{VISIBLE_MS_MAX:g} ms",
        lambda: VISIBLE_MS_MAX,
        rounds=plan.rounds,
        note=f"{EVENTS_PER_SECOND:,} events/s",
    )


async def _push(url: str, events: int, tasks: int) -> None:
    queue = f"metrics-{uuid.uuid4().hex}"
    async with AsyncClient(url) as client:

        async def task(number: int) -> None:
            for n in range(number, events, tasks):
                await client.push(queue, {"n": n, "cpu": 45}, buffer_ms=BUFFER_MS, buffer_max=BUFFER_MAX)

        await asyncio.gather(*[task(number) for number in range(tasks)])


async def _visibility_ms(url: str, seconds: float) -> float:
    queue = f"visible-{uuid.uuid4().hex}"
    count = int(EVENTS_PER_SECOND * seconds)
    waits: list[float] = []
    async with AsyncClient(url) as client, AsyncClient(url) as consumer:

        async def consume() -> None:
            while len(waits) < count:
                messages = await consumer.pop(queue, batch=1000, wait=True, timeout=5, auto_ack=True)
                now = time.time()
                waits.extend([now - message.data for message in messages])

        consuming = asyncio.create_task(consume())
        began = time.time()
        sending: set[asyncio.Task[object]] = set()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / EVENTS_PER_SECOND - time.time()))
            push = client.push(queue, time.time(), buffer_ms=BUFFER_MS, buffer_max=BUFFER_MAX)
            sending.add(task := asyncio.create_task(push))
            task.add_done_callback(sending.discard)
        await asyncio.gather(*sending)
        await consuming
    return statistics.mean(waits) * 1000
