"""The thread that writes pushes outlives what nobody has foreseen."""

from __future__ import annotations

import pytest

from forebay.broker.store import PushItem
from forebay.broker.stores.postgres.push_line import PushLine
from forebay.broker.stores.postgres.push_writer import Group, NextGroup, PushWriter
from forebay.broker.stores.postgres.pushing import Availability
from forebay.errors import StoreUnavailable

pytestmark = pytest.mark.asyncio
ITEM = PushItem("q", "p", b"1", "id")


class Broken(PushWriter):
    """Fails at its first group, and then settles every group without writing it."""

    has_failed = False

    def write(self, group: Group | None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ZeroDivisionError("a fault in the writer")
        while group is not None:
            group.settle([[] for _ in group.requests], Availability({}, set()))
            group = self._next_group(0)


def broken(next_group: NextGroup) -> PushWriter:
    return Broken("", "", next_group, lambda: None, request_seconds_max=1)


async def test_fault_in_the_writer_is_told_to_its_group_and_to_nobody_else() -> None:
    line = PushLine(broken, lambda availability: None, size_max=1000)
    first, second = line.submit([ITEM], 10), line.submit([ITEM], 10)
    for future in (first, second):
        with pytest.raises(StoreUnavailable, match="a fault in the writer") as failed:
            await future
        assert failed.value.is_outcome_unknown
    assert await line.submit([ITEM], 10) == []
    assert [await future for future in [line.submit([ITEM], 10) for _ in range(3)]] == [[], [], []]
    await line.close()
