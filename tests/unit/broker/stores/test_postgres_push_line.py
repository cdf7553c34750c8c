"""Pushes in line: the thread outlives what nobody has foreseen, and a line that ends leaves nobody waiting."""

from __future__ import annotations

import pytest

from forebay.broker.messages import PushItem
from forebay.broker.stores.postgres.push_line import PushLine
from forebay.broker.stores.postgres.push_writer import PushWriter, Requests, Settled
from forebay.broker.stores.postgres.pushing import Availability
from forebay.errors import StoreUnavailable

pytestmark = pytest.mark.asyncio
ITEM = PushItem("q", "p", b"1", "id")


class Broken(PushWriter):
    """Fails at its first group, and then settles every group without writing it."""

    has_failed = False

    def __init__(self) -> None:
        super().__init__("", "", lambda: None, request_seconds_max=1)

    def write(self, requests: Requests) -> Settled:
        if not self.has_failed:
            self.has_failed = True
            raise ZeroDivisionError("a fault in the writer")
        return Settled([[] for _ in requests], Availability({}, set()))


async def test_fault_in_the_writer_is_told_to_its_group_and_to_nobody_else() -> None:
    line = PushLine(Broken(), lambda availability: None, size_max=1000)
    first, second = line.submit([ITEM], 10), line.submit([ITEM], 10)
    for future in (first, second):
        with pytest.raises(StoreUnavailable, match="a fault in the writer") as failed:
            await future
        assert failed.value.is_outcome_unknown
    assert await line.submit([ITEM], 10) == []
    assert [await future for future in [line.submit([ITEM], 10) for _ in range(3)]] == [[], [], []]
    await line.close()


async def test_line_that_is_closed_has_settled_what_waited_and_begins_anew() -> None:
    line = PushLine(Broken(), lambda availability: None, size_max=1000)
    with pytest.raises(StoreUnavailable):
        await line.submit([ITEM], 10)
    waiting = [line.submit([ITEM], 900) for _ in range(5)]
    await line.close()
    assert [future.done() for future in waiting] == [True] * 5
    assert await line.submit([ITEM], 10) == []
    await line.close()


async def test_push_that_is_taken_back_before_its_turn_is_not_written() -> None:
    seen: list[int] = []

    class Noting(Broken):
        has_failed = True

        def write(self, requests: Requests) -> Settled:
            seen.append(len(requests))
            return super().write(requests)

    line = PushLine(Noting(), lambda availability: None, size_max=1000)
    first, second = line.submit([ITEM], 10), line.submit([ITEM], 10)
    first.cancel()
    assert await second == []
    assert seen == [1]
    await line.close()
