"""Pushes in line: a fault fails the group that it meets and no other, and every push is answered."""

from __future__ import annotations

import pytest

from forebay.broker.stores.postgres.connections import Database
from forebay.broker.stores.postgres.push_batcher import PushBatcher
from forebay.broker.stores.postgres.push_lookups import PushLookups, Requests, Settled
from forebay.broker.stores.postgres.pushing import Availability
from forebay.errors import StoreUnavailable
from forebay.model.histogram import Histogram
from forebay.model.push_run import run_of_one

pytestmark = pytest.mark.asyncio
ITEM = run_of_one("q", "p", b"1", "id")


class Lookups:
    """Takes the place of what writes groups: fails at its first one, and settles all others without writing them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[int] = []
        monkeypatch.setattr(PushLookups, "write", self.write)

    async def write(self, requests: Requests) -> Settled:
        self.groups.append(len(requests))
        if len(self.groups) == 1:
            raise ZeroDivisionError("a fault in the writer")
        return Settled([[] for _ in requests], Availability({}, set()))


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    return Lookups(monkeypatch)


@pytest.fixture
def batcher() -> PushBatcher:
    database = Database("", request_seconds_max=1)
    return PushBatcher(database, "s", lambda: None, lambda availability: None, Histogram(), size_max=1000)


async def test_fault_in_the_writer_is_told_to_its_group_and_to_no_other(batcher: PushBatcher, lookups: Lookups) -> None:
    for future in (batcher.submit([ITEM], 10), batcher.submit([ITEM], 10)):
        with pytest.raises(StoreUnavailable, match="a fault in the writer") as failed:
            await future
        assert failed.value.is_outcome_unknown
    assert await batcher.submit([ITEM], 10) == []
    assert [await future for future in [batcher.submit([ITEM], 10) for _ in range(3)]] == [[], [], []]
    assert lookups.groups == [2, 1, 3]
    await batcher.close()


async def test_batcher_that_is_closed_has_settled_what_waited_and_begins_anew(
    batcher: PushBatcher, lookups: Lookups
) -> None:
    with pytest.raises(StoreUnavailable):
        await batcher.submit([ITEM], 10)
    waiting = [batcher.submit([ITEM], 900) for _ in range(5)]
    await batcher.close()
    assert [future.done() for future in waiting] == [True] * 5
    assert await batcher.submit([ITEM], 10) == []
    await batcher.close()


async def test_push_that_is_taken_back_before_its_turn_is_not_written(batcher: PushBatcher, lookups: Lookups) -> None:
    lookups.groups.append(0)
    first, second = batcher.submit([ITEM], 10), batcher.submit([ITEM], 10)
    first.cancel()
    assert await second == []
    assert lookups.groups == [0, 1]
    await batcher.close()
