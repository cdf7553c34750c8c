"""What dispatch does by itself, on every store: refilling, rebuilding, expiring; and what it survives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Collection, Mapping, Sequence

import pytest

from fixtures.dispatch_steps import Dispatching, dids, first_seqs, flow
from fixtures.waiting import until_told
from forebay.broker.store import Store
from forebay.dispatch.upkeep import Loop
from forebay.dispatch.warm import WarmEntry, WarmUnavailable
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.errors import StoreUnavailable
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

SHOP = flow("shop", "parse")
NEVER = 3600.0


class WarmThatGoesAway(EmbeddedWarm):
    """A tier that a test takes away, and that has forgotten everything when it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False

    async def _reach(self) -> None:
        if self.is_away:
            await self.close()
            raise WarmUnavailable("test", "taken away")

    async def add(self, entries: Sequence[WarmEntry]) -> None:
        await self._reach()
        await super().add(entries)

    async def take(
        self, action_class: str, parcels_max: int, *, without: Collection[str] = (), same_step: bool = False
    ) -> list[WarmEntry]:
        await self._reach()
        return await super().take(action_class, parcels_max, without=without, same_step=same_step)

    async def remove(self, entries: Sequence[WarmEntry]) -> None:
        await self._reach()
        await super().remove(entries)

    async def sizes(self) -> Mapping[str, int]:
        await self._reach()
        return await super().sizes()

    async def marker(self) -> str:
        await self._reach()
        return await super().marker()

    async def rebuild(self, action_class: str, pages: AsyncIterable[Sequence[WarmEntry]]) -> None:
        await self._reach()
        await super().rebuild(action_class, pages)


@pytest.fixture
def warm() -> WarmThatGoesAway:
    return WarmThatGoesAway()


@pytest.fixture
def dispatch(store: Store, warm: WarmThatGoesAway, clock: FakeClock) -> Dispatching:
    return Dispatching(store, warm, clock, cold_to_warm_seconds=NEVER, sizes_seconds=NEVER)


async def test_leases_make_room_that_is_refilled_at_once(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 30)
    dispatch.upkeep.start(dispatch.leasing)
    try:
        await dispatch.leased(parcels=6)

        async def is_refilled() -> bool:
            return await dispatch.states() == {"LEASED": 6, "QUEUED": 10, "COLD_QUEUED": 14}

        await until_told(is_refilled)
    finally:
        await dispatch.upkeep.stop()


async def test_room_that_another_server_made_is_refilled_when_its_time_comes(store: Store, clock: FakeClock) -> None:
    """Nothing tells this server of it: the loop looks by itself."""
    one = Dispatching(store, EmbeddedWarm(), clock, cold_to_warm_seconds=0.05, sizes_seconds=NEVER)
    other = Dispatching(store, EmbeddedWarm(), clock)
    await one.define(SHOP)
    await one.arrive(SHOP, 14)
    for _ in range(2):
        await other.upkeep.watch.turn()
    await other.complete(await other.leased(parcels=10))
    assert await one.states() == {"COMPLETE": 10, "COLD_QUEUED": 4}
    one.upkeep.start(one.leasing)
    try:

        async def is_refilled() -> bool:
            return await one.states() == {"COMPLETE": 10, "QUEUED": 4}

        await until_told(is_refilled)
    finally:
        await one.upkeep.stop()


async def test_worker_that_waits_on_a_cold_class_has_it_refilled(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 12)
    await dispatch.complete(await dispatch.leased())
    assert await dispatch.lease() is None
    dispatch.upkeep.start(dispatch.leasing)
    try:
        assert first_seqs([await dispatch.leased(wait_seconds=20)]) == [101, 111]
    finally:
        await dispatch.upkeep.stop()


async def test_loop_that_fails_goes_on(dispatch: Dispatching, caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []
    is_done = asyncio.Event()

    async def turn() -> float:
        turns.append(len(turns))
        if len(turns) == 1:
            raise StoreUnavailable("the database is away")
        if len(turns) == 2:
            raise ZeroDivisionError
        is_done.set()
        return NEVER

    dispatch.upkeep.start(dispatch.leasing, [Loop("sources", turn)])
    async with asyncio.timeout(20):
        await is_done.wait()
    await dispatch.upkeep.stop()
    assert [record.levelname for record in caplog.records if "dispatch, sources" in record.message] == [
        "WARNING",
        "ERROR",
    ]


async def test_parcels_are_leased_from_the_database_while_the_warm_tier_is_away(
    dispatch: Dispatching, warm: WarmThatGoesAway, caplog: pytest.LogCaptureFixture
) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 4)
    warm.is_away = True
    assert first_seqs([await dispatch.leased(parcels=2)]) == [1, 11]
    await dispatch.arrive(SHOP, 2)
    assert first_seqs([await dispatch.leased(parcels=3)]) == [21, 31, 41]
    assert await dispatch.upkeep.watch.turn() == []
    warm.is_away = False
    assert await dispatch.upkeep.watch.turn() == ["parse"]
    assert dict(await warm.sizes()) == {"parse": 1}
    assert first_seqs([await dispatch.leased()]) == [51]
    assert len([record for record in caplog.records if "leases from the database" in record.message]) == 1
    await dispatch.check()


async def test_noise_between_tier_and_database_rebuilds_a_class_less_and_less(
    dispatch: Dispatching, warm: WarmThatGoesAway
) -> None:
    await dispatch.define(SHOP)
    enqueued = await dispatch.arrive(SHOP, 5)
    await dispatch.upkeep.watch.turn()
    rebuilt = []
    for _ in range(12):
        await warm.remove(enqueued.warm[:1])
        rebuilt.append(len(await dispatch.upkeep.watch.turn()))
    assert rebuilt == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]


async def test_lease_given_before_the_clock_was_set_back_ends(dispatch: Dispatching, clock: FakeClock) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    await dispatch.leased()
    clock.step(-3600)
    await dispatch.upkeep.expiry_turn()
    assert [parcel.attempt for parcel in (await dispatch.leased()).parcels] == [2]


async def test_worker_that_lives_keeps_its_lease_over_a_small_step_back(
    dispatch: Dispatching, clock: FakeClock
) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    clock.step(-30)
    await dispatch.upkeep.expiry_turn()
    await dispatch.leasing.heartbeat(lease.lease_id)
    await dispatch.complete(lease)


async def test_two_servers_with_a_tier_each_lease_every_parcel_once(store: Store, clock: FakeClock) -> None:
    one, other = Dispatching(store, EmbeddedWarm(), clock), Dispatching(store, EmbeddedWarm(), clock)
    await one.define(SHOP)
    for _ in range(3):
        await one.arrive(SHOP, 3)
    for _ in range(2):
        await other.upkeep.sizes_turn()
    leases = await asyncio.gather(*(each.lease(parcels=2) for each in (one, other) * 4))
    given = Counter(did for lease in leases if lease is not None for did in dids(lease))
    assert set(given.values()) == {1}
    assert len(given) == 9
    await one.check()


async def test_thousands_expire_a_piece_at_a_time(store: Store, clock: FakeClock) -> None:
    dispatch = Dispatching(store, EmbeddedWarm(), clock, in_memory_queue_size=100)
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 60)
    for number in range(15):
        await dispatch.leased(parcels=4, worker=f"w{number}")
    clock.advance(61)
    assert await dispatch.upkeep.expiry_turn() == 0
    assert (await dispatch.states()) == {"QUEUED": 40, "LEASED": 20}
    assert await dispatch.upkeep.expiry_turn() > 0
    assert (await dispatch.states()) == {"QUEUED": 60}
    assert first_seqs([await dispatch.leased()]) == [1 + 10 * n for n in range(60)]


async def test_servers_and_workers_in_each_others_way_lose_and_double_nothing(store: Store, clock: FakeClock) -> None:
    there = flow("there", "first", "second", "third")
    back = flow("back", "third", "second", "first")
    servers = [Dispatching(store, EmbeddedWarm(), clock, in_memory_queue_size=20) for _ in range(2)]
    await servers[0].define(there, back)
    finished: Counter[str] = Counter()

    async def arrive(server: Dispatching) -> None:
        for _ in range(10):
            await server.arrive(there, 4)
            await server.arrive(back, 4)

    async def work(server: Dispatching, worker: str) -> None:
        idle, leases = 0, 0
        while idle < 20:
            lease = await server.lease(parcels=7, worker=worker)
            if lease is None:
                idle += 1
                await server.upkeep.refill_turn()
                await server.upkeep.expiry_turn()
                continue
            idle, leases = 0, leases + 1
            if leases in (2, 5):
                await server.leasing.release(lease.lease_id)
                continue
            await server.complete(lease)
            finished.update(parcel.did for parcel in lease.parcels if parcel.step == 2)

    jobs = [arrive(server) for server in servers]
    jobs += [work(server, f"w{n}{m}") for n, server in enumerate(servers) for m in range(3)]
    await asyncio.gather(*jobs)
    assert await servers[0].parcel_states() == {"COMPLETE": 160}
    assert (len(finished), set(finished.values())) == (160, {1})
    await servers[0].check()
