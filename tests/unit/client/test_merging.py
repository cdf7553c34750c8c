"""Single pushes that share a request: who goes with whom, and who fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from forebay.client.merging import BYTES_MAX, ITEMS_MAX, Merger
from forebay.client.messages import Pushed, Refused, Unreachable


class Server:
    """Takes requests one by one; the first is answered when `go` is set."""

    def __init__(self, refused: bytes = b"") -> None:
        self.requests: list[list[bytes]] = []
        self.go = asyncio.Event()
        self.refused = refused
        self.is_down = False

    async def send(self, items: Sequence[bytes]) -> list[Pushed]:
        self.requests.append(list(items))
        await self.go.wait()
        if self.is_down:
            raise Unreachable("nobody answers")
        if self.refused in items:
            raise Refused(400, "not this one")
        return [Pushed("queued", item.decode(), "", "", number, "log") for number, item in enumerate(items)]


async def pushed_together(server: Server, items: Sequence[bytes]) -> list[Pushed | BaseException]:
    """One push is under way; the others come meanwhile."""
    merger = Merger(server.send)
    tasks = [merger.add(item) for item in items]
    while not server.requests:
        await asyncio.sleep(0)
    server.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert merger.is_idle
    return found


async def test_lone_push_leaves_at_once() -> None:
    server = Server()
    server.go.set()
    assert (await Merger(server.send).add(b"a")).transaction_id == "a"
    assert server.requests == [[b"a"]]


async def test_pushes_that_wait_go_together_in_order_and_get_their_own_answers() -> None:
    server = Server()
    names = [b"%d" % n for n in range(50)]
    merger = Merger(server.send)
    first = merger.add(b"first")
    while not server.requests:
        await asyncio.sleep(0)
    others = [merger.add(name) for name in names]
    await asyncio.sleep(0)
    server.go.set()
    answers = await asyncio.gather(first, *others)
    assert server.requests == [[b"first"], names]
    assert [answer.transaction_id.encode() for answer in answers] == [b"first", *names]


async def test_message_that_is_refused_fails_alone() -> None:
    server = Server(refused=b"bad")
    good, bad, also_good = await pushed_together(server, [b"good", b"bad", b"also good"])
    assert isinstance(good, Pushed)
    assert isinstance(bad, Refused)
    assert isinstance(also_good, Pushed)


async def test_server_that_is_away_fails_all_and_the_next_push_tries_again() -> None:
    server = Server()
    server.is_down = True
    found = await pushed_together(server, [b"a", b"b"])
    assert all(isinstance(outcome, Unreachable) for outcome in found)
    server.is_down = False
    assert (await Merger(server.send).add(b"c")).status == "queued"


@pytest.mark.parametrize(("item", "most"), [(b"x", ITEMS_MAX), (b"x" * (BYTES_MAX // 4), 4)])
async def test_request_stays_within_its_limits(item: bytes, most: int) -> None:
    server = Server()
    await pushed_together(server, [item] * (most + 3))
    assert max(map(len, server.requests)) <= most
    assert sum(map(len, server.requests)) == most + 3


async def test_cancelled_push_takes_nobody_with_it() -> None:
    server = Server()
    merger = Merger(server.send)
    cancelled, other = merger.add(b"a"), merger.add(b"b")
    while not server.requests:
        await asyncio.sleep(0)
    cancelled.cancel()
    server.go.set()
    assert (await other).transaction_id == "b"
    with pytest.raises(asyncio.CancelledError):
        await cancelled
