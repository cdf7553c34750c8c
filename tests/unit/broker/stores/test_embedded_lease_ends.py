"""A lease of several partitions ends at one moment in all of them, however long the pop takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from fixtures.store_steps import ids, item, take
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
LEASE_SECONDS = 10


class TickingClock(FakeClock):
    """Time goes on between two readings."""

    tick_seconds = 0.0

    def now_us(self) -> int:
        self.advance(self.tick_seconds)
        return super().now_us()


async def test_lost_lease_is_taken_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    clock = TickingClock()
    store = await opened(tmp_path / "data", clock=clock)
    try:
        await store.push([item(text, text) for text in "abcd"])
        clock.tick_seconds = 0.01
        for _ in range(2):  # the second lease is the first one, taken again
            began_us = clock.now_us()
            leased = await take(store, partitions=10, lease_seconds=LEASE_SECONDS, whole_leases=True)
            assert sorted(ids(leased)) == list("abcd")
            clock.tick_seconds = 0.0
            clock.step((began_us - clock.now_us()) / 1e6 + LEASE_SECONDS)
            found: list[str] = []
            while not found:
                clock.advance(0.001)
                found = sorted(ids(await take(store, 1, partitions=10, lease_seconds=1, whole_leases=True)))
            assert found == list("abcd")
            clock.advance(LEASE_SECONDS)
            clock.tick_seconds = 0.01
    finally:
        await store.close()
