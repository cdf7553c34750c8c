"""Room for ten warm parcels, or for a hundred thousand: never more than that, in order, and none lost."""

from __future__ import annotations

import pytest

from fixtures.dispatch_steps import Dispatching, drained, first_seqs, flow
from forebay.broker.store import Store
from forebay.dispatch.warm import WarmTier
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.testing.fake_clock import FakeClock

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

SHOP = flow("shop", "parse")


async def arrived(dispatch: Dispatching, parcels: int) -> None:
    await dispatch.define(SHOP)
    for _ in range(parcels // 1_000):
        await dispatch.arrive(SHOP, 1_000, messages=1)


async def test_class_with_room_for_ten(store: Store, warm: WarmTier, clock: FakeClock) -> None:
    dispatch = Dispatching(store, warm, clock, in_memory_queue_size=10)
    await arrived(dispatch, 1_000)
    assert await dispatch.states() == {"QUEUED": 10, "COLD_QUEUED": 990}
    leases = await drained(dispatch, 7)
    assert first_seqs(leases) == list(range(1, 1_001))
    await dispatch.check()


async def test_class_with_room_for_a_hundred_thousand(store: Store, warm: WarmTier, clock: FakeClock) -> None:
    dispatch = Dispatching(store, warm, clock, in_memory_queue_size=100_000)
    await arrived(dispatch, 20_000)
    assert await dispatch.states() == {"QUEUED": 20_000}
    assert sum((await warm.sizes()).values()) == 20_000
    leases = await drained(dispatch, 1_000)
    assert first_seqs(leases) == list(range(1, 20_001))
    await dispatch.check()


@pytest.mark.parametrize("unopened_store", ["embedded"], indirect=True)
async def test_class_with_room_for_a_hundred_thousand_that_is_full(store: Store, clock: FakeClock) -> None:
    """A thousand too many: they are cold until there is room at its threshold, and nothing overtakes."""
    warm = EmbeddedWarm()
    dispatch = Dispatching(store, warm, clock, in_memory_queue_size=100_000)
    await arrived(dispatch, 101_000)
    assert await dispatch.states() == {"QUEUED": 100_000, "COLD_QUEUED": 1_000}
    assert sum((await warm.sizes()).values()) == 100_000
    await dispatch.arrive(SHOP, 10, messages=1)
    assert (await dispatch.states())["COLD_QUEUED"] == 1_010
    await dispatch.check()
    seqs = []
    for _ in range(12):  # to less than 90 %: then all that is cold comes back
        seqs += first_seqs([await dispatch.leased(parcels=1_000)])
    while await dispatch.upkeep.refill_turn():
        pass
    assert "COLD_QUEUED" not in await dispatch.states()
    await dispatch.check()
    leases = await drained(dispatch, 10_000)
    assert seqs + first_seqs(leases) == list(range(1, 101_011))
