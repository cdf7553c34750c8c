"""The figures of dispatch."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forebay.bench.dispatch.loads import BATCH, Load, dispatching, fill_cold, flow
from forebay.bench.harness import Figure, at_least, at_most
from forebay.broker.messages import PopRequest
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.dispatch.ledger import details
from forebay.dispatch.ledger.refill import refill
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.warm import WarmEntry, WarmTier
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.model.push_run import run_of_one
from forebay.testing.servers import PostgresServer, ValkeyServer

CLASSES = 50
LANES = 16
Lanes = Callable[[Store], Awaitable[float]]
"""Work of that many clients at once; how much of it was done in a second."""
BARE_CLAIM = """
local taken = redis.call('ZPOPMIN', KEYS[1], ARGV[1])
return taken
"""


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """How much is measured."""

    rounds: int = 5
    parcels: int = 4_000
    cold: int = 1_000_000
    few_cold: int = 10_000
    pushes: int = 2_000

    @classmethod
    def quick(cls, rounds: int = 1) -> DispatchPlan:
        """All of it, but small: for trying it out, and for the tests."""
        return cls(rounds, 400, 20_000, 10_000, 64)


def suite(directory: Path, plan: DispatchPlan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure."""
    with asyncio.Runner() as runner, ValkeyServer() as valkey:
        measure = Measures(runner.run, plan)
        yield from measure.embedded(directory / "embedded")
        tell("starting PostgreSQL beside Valkey")
        with PostgresServer() as postgres:
            yield from measure.served(postgres.url, valkey.url)
        tell(f"putting {plan.cold:,} cold parcels into {CLASSES} classes")
        yield from measure.deep(directory)


def _nothing(queue: str, count: int) -> None:
    """No consumer waits."""


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open(_nothing)
    try:
        yield store
    finally:
        await store.close()


class Measures:
    """Each figure's two sides as plain functions, which run a coroutine on the suite's event loop."""

    def __init__(self, run: Callable[[Coroutine[object, object, float]], float], plan: DispatchPlan) -> None:
        self._run = run
        self._plan = plan

    def embedded(self, directory: Path) -> Iterator[Figure]:
        rounds = iter(range(1 << 30))

        def store() -> Store:
            return EmbeddedStore(directory / str(next(rounds)))

        yield at_least(
            1,
            "enqueue, lease and complete, embedded",
            "parcels/s",
            lambda: self._run(self._through(store(), EmbeddedWarm())),
            "10,000 parcels/s",
            lambda: 10_000,
            rounds=self._plan.rounds,
            note=f"{BATCH} at a time, two at once",
        )
        yield at_least(
            0.9,
            "lease and complete while the class is cold",
            "parcels/s",
            lambda: self._run(self._worked(store(), warm_max=self._plan.parcels // 10)),
            "while it is warm",
            lambda: self._run(self._worked(store(), warm_max=self._plan.parcels * 2)),
            rounds=self._plan.rounds,
            note="ten times as many parcels as wait warm",
        )
        for what, work in (("pushes", self._push_all), ("pops", self._pop_all)):
            yield at_least(
                0.95,
                f"{what} beside an idle dispatch",
                f"{what}/s",
                lambda work=work: self._run(self._beside_idle(store(), work)),  # type: ignore[misc]
                "without it",
                lambda work=work: self._run(self._alone(store(), work)),  # type: ignore[misc]
                rounds=self._plan.rounds,
                note=f"{LANES} at once, one message each",
            )

    def served(self, postgres_url: str, valkey_url: str) -> Iterator[Figure]:
        from forebay.broker.stores.postgres import PostgresStore
        from forebay.dispatch.warms.valkey import ValkeyWarm

        yield at_least(
            1,
            "enqueue, lease and complete, PostgreSQL and Valkey",
            "parcels/s",
            lambda: self._run(self._through(PostgresStore(postgres_url), ValkeyWarm(valkey_url))),
            "5,000 parcels/s",
            lambda: 5_000,
            rounds=self._plan.rounds,
            note=f"{BATCH} at a time, two at once",
        )
        yield at_least(
            0.5,
            "the warm tier in Valkey: add and take",
            "parcels/s",
            lambda: self._run(self._taken(ValkeyWarm(valkey_url))),
            "a bare Lua claim loop",
            lambda: self._run(self._claimed(valkey_url)),
            rounds=self._plan.rounds,
            note=f"{BATCH} at a time; ours takes turns between flows",
        )

    def deep(self, directory: Path) -> Iterator[Figure]:
        return _deep(self._run, self._plan, directory)

    async def _through(self, store: Store, warm: WarmTier) -> float:
        async with opened(store), dispatching(store, warm) as dispatcher:
            load = Load(store, dispatcher)
            await load.define()
            return await load.through(self._plan.parcels)

    async def _worked(self, store: Store, warm_max: int) -> float:
        limits = DispatchLimits(in_memory_queue_size=warm_max)
        async with opened(store), dispatching(store, EmbeddedWarm(), limits) as dispatcher:
            load = Load(store, dispatcher)
            await load.define()
            await load.put(self._plan.parcels)
            began = time.perf_counter()
            await load.work_off(self._plan.parcels)
            return self._plan.parcels / (time.perf_counter() - began)

    async def _alone(self, store: Store, work: Lanes) -> float:
        async with opened(store):
            return await work(store)

    async def _beside_idle(self, store: Store, work: Lanes) -> float:
        async with opened(store), dispatching(store, EmbeddedWarm()) as dispatcher:
            await dispatcher.define(flow("idle", "idle.Work"))
            return await work(store)

    async def _push_all(self, store: Store) -> float:
        async def push_some(lane: int) -> None:
            for _ in range(self._plan.pushes // LANES):
                await store.push([run_of_one("bench", f"p{lane}", b"{}", "")])

        return await self._per_second(push_some)

    async def _pop_all(self, store: Store) -> float:
        """What was pushed before, each message popped and completed by itself."""
        each = self._plan.pushes // LANES
        await store.push([run_of_one("bench", f"p{n % LANES}", b"{}", f"m{n}") for n in range(each * LANES)])

        async def pop_some(lane: int) -> None:
            for _ in range(each):
                popped = await store.pop(PopRequest("bench", f"p{lane}"))
                await store.complete([popped.lease_id])

        return await self._per_second(pop_some)

    async def _per_second(self, lane_work: Callable[[int], Awaitable[None]]) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(lane_work(lane) for lane in range(LANES)))
        return self._plan.pushes // LANES * LANES / (time.perf_counter() - began)

    async def _taken(self, warm: WarmTier) -> float:
        began = time.perf_counter()
        for start in range(0, self._plan.parcels, BATCH):
            await warm.add([WarmEntry("bench.Work", "bench", n, f"did-{n}", 0) for n in range(start, start + BATCH)])
            await warm.take("bench.Work", BATCH)
        found = self._plan.parcels / (time.perf_counter() - began)
        await warm.close()
        return found

    async def _claimed(self, url: str) -> float:
        from valkey.asyncio import Valkey

        client = Valkey.from_url(url)
        claim = client.register_script(BARE_CLAIM)
        began = time.perf_counter()
        for start in range(0, self._plan.parcels, BATCH):
            await client.zadd("bare", {f"did-{n}": n for n in range(start, start + BATCH)})
            await claim(keys=["bare"], args=[BATCH])
        found = self._plan.parcels / (time.perf_counter() - began)
        await client.aclose()
        return found


def _deep(
    run: Callable[[Coroutine[object, object, float]], float], plan: DispatchPlan, directory: Path
) -> Iterator[Figure]:
    """Figures that must not depend on how much is cold."""
    stores = {cold: EmbeddedStore(directory / f"cold-{cold}") for cold in (plan.cold, plan.few_cold)}
    names = [f"deep.Class{number}" for number in range(CLASSES)]
    for cold, store in stores.items():
        run(_filled(store, names, cold))
    full, few = stores[plan.cold], stores[plan.few_cold]
    rounds = plan.rounds
    yield at_least(
        1,
        "cold to warm",
        "parcels/s",
        lambda: run(_refilled(full, names[0], plan)),
        "20,000 parcels/s",
        lambda: 20_000,
        rounds=rounds,
        note=f"of {plan.cold:,}, 1,000 in a transaction",
    )
    yield at_most(
        1,
        f"detailed metrics, {plan.cold:,} cold in {CLASSES} classes",
        "ms",
        lambda: 1000 * run(_timed(lambda: full.look(details.detailed))),
        "200 ms",
        lambda: 200,
        rounds=rounds,
        note="embedded; what the REST route asks, without its cache",
    )
    for what, timed in (("a refill of 100", _refill_time), ("a lease of 100, and its completion", _lease_time)):
        yield at_most(
            1.5,
            f"{what}, {plan.cold:,} cold",
            "ms",
            lambda timed=timed: 1000 * run(timed(full, names)),  # type: ignore[misc]
            f"with {plan.few_cold:,}",
            lambda timed=timed: 1000 * run(timed(few, names)),  # type: ignore[misc]
            rounds=rounds,
            note="embedded, median of five",
        )
    for store in stores.values():
        run(_closed(store))


async def _filled(store: Store, names: list[str], cold: int) -> float:
    await store.open(_nothing)
    async with dispatching(store, EmbeddedWarm(), DispatchLimits(in_memory_queue_size=1)) as dispatcher:
        for name in names:
            await dispatcher.define(flow("deep", name))
    await fill_cold(store, "deep", names, cold)
    return 0.0


async def _closed(store: Store) -> float:
    await store.close()
    return 0.0


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    found = []
    for _ in range(5):
        began = time.perf_counter()
        await work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


async def _refilled(store: Store, action_class: str, plan: DispatchPlan) -> float:
    """How many per second go warm, of one class; then they are put back."""
    capacity, warmed, began = min(10_000, plan.cold // CLASSES), 0, time.perf_counter()
    while True:
        done = await store.together(partial(refill, action_class, capacity, 1_000))
        warmed += len(done.warmed)
        if not done.is_more:
            break
    found = warmed / (time.perf_counter() - began)
    await _cool(store, action_class)
    return found


async def _refill_time(store: Store, names: list[str]) -> float:
    found = []
    for name in names[1:6]:
        began = time.perf_counter()
        await store.together(partial(refill, name, 100, 100))
        found.append(time.perf_counter() - began)
        await _cool(store, name)
    return statistics.median(found)


async def _lease_time(store: Store, names: list[str]) -> float:
    found = []
    async with dispatching(store, EmbeddedWarm(), DispatchLimits(in_memory_queue_size=100)) as dispatcher:
        for number in range(5):
            load = Load(store, dispatcher, f"beside{time.time_ns()}-{number}")
            await load.define()
            await load.put(BATCH // 2)
            began = time.perf_counter()
            await load.work_once()
            found.append(time.perf_counter() - began)
    return statistics.median(found)


async def _cool(store: Store, action_class: str) -> None:
    from forebay.broker.room_work import Ask, Work, statement

    cool = statement(
        "bench_cool",
        "UPDATE forebay.parcel_flows SET state = 'COLD_QUEUED' WHERE state = 'QUEUED' AND action_class = :action_class",
    )

    def work() -> Work[None]:
        yield Ask(cool, {"action_class": action_class})

    await store.together(work)
