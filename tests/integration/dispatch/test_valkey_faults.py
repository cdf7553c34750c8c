"""A Valkey that dies, forgets, freezes, fills up or cannot be reached: the warm tier says so, soon, and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import valkey

from fixtures.tcp_proxy import TcpProxy
from forebay.dispatch.warm import WarmEntry, WarmUnavailable
from forebay.dispatch.warms.valkey import ValkeyWarm
from forebay.testing.servers import ValkeyServer

CALL_SECONDS_MAX = 3.0
"""A call is bounded by half a second; this machine may be busy."""
BACK_SECONDS_MAX = 10.0


@pytest.fixture
async def warm(valkey_server: ValkeyServer) -> AsyncIterator[ValkeyWarm]:
    tier = ValkeyWarm(valkey_server.url)
    yield tier
    await tier.close()


def entries(count: int, *, first: int = 1, chars: int = 8) -> list[WarmEntry]:
    return [WarmEntry("geo", "orders", place, f"{place:0{chars}}", 0) for place in range(first, first + count)]


async def paged(page: Sequence[WarmEntry]) -> AsyncIterator[Sequence[WarmEntry]]:
    yield page


async def refused(call: Callable[[], Awaitable[object]], seconds_max: float = CALL_SECONDS_MAX) -> str:
    """The cause that a call gives, which has to come in time."""
    began = time.monotonic()
    with pytest.raises(WarmUnavailable) as caught:
        await call()
    assert time.monotonic() - began < seconds_max
    return caught.value.cause


async def until_back(warm: ValkeyWarm) -> None:
    async with asyncio.timeout(BACK_SECONDS_MAX):
        while True:
            try:
                await warm.sizes()
            except WarmUnavailable:
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_server_that_never_ran_is_away_with_its_cause() -> None:
    server = ValkeyServer()
    warm = ValkeyWarm(server.url)
    try:
        assert "127.0.0.1" in await refused(lambda: warm.take("geo", 1))
        assert await refused(lambda: warm.add(entries(1)), 0.1), "the second is refused without trying"
        server.start()
        await until_back(warm)
        await warm.add(entries(1))
        assert await warm.take("geo", 9) == entries(1)
    finally:
        await warm.close()
        server.close()


async def test_a_killed_server_is_away_and_comes_back_empty_without_a_marker(
    warm: ValkeyWarm, valkey_server: ValkeyServer
) -> None:
    await warm.rebuild("geo", paged(entries(100)))
    assert await warm.marker()
    valkey_server.kill()
    assert await refused(lambda: warm.take("geo", 1))
    for _ in range(100):
        await refused(warm.sizes, 0.1)
    valkey_server.start()
    await until_back(warm)
    assert await warm.marker() == ""
    assert await warm.sizes() == {}
    await warm.rebuild("geo", paged(entries(100)))
    assert await warm.take("geo", 1000) == entries(100)


async def test_a_restart_between_two_calls_is_survived(warm: ValkeyWarm, valkey_server: ValkeyServer) -> None:
    await warm.add(entries(3))
    valkey_server.restart()
    await until_back(warm)
    await warm.add(entries(3))
    assert await warm.take("geo", 9) == entries(3), "the scripts are known to the new server too"


async def test_flushall_takes_the_entries_and_the_marker(warm: ValkeyWarm, valkey_server: ValkeyServer) -> None:
    await warm.rebuild("geo", paged(entries(100)))
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.flushall()
    assert await warm.marker() == ""
    assert await warm.take("geo", 1) == []
    await warm.add(entries(2))
    assert await warm.take("geo", 9) == entries(2)


async def test_scripts_that_were_forgotten_are_sent_again(warm: ValkeyWarm, valkey_server: ValkeyServer) -> None:
    await warm.add(entries(2))
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.script_flush()
    assert await warm.take("geo", 9) == entries(2)


async def test_flushall_during_takes_gives_nothing_twice(warm: ValkeyWarm, valkey_server: ValkeyServer) -> None:
    await warm.add(entries(20_000))
    with valkey.Valkey.from_url(valkey_server.url) as client:
        takes = [asyncio.create_task(warm.take("geo", 10)) for _ in range(200)]
        await asyncio.sleep(0)
        await asyncio.to_thread(client.flushall)
        taken = [one.place for batch in await asyncio.gather(*takes) for one in batch]
    assert len(taken) == len(set(taken))


async def test_a_server_without_memory_refuses_what_is_added_and_gives_what_it_has(
    warm: ValkeyWarm, valkey_server: ValkeyServer
) -> None:
    await warm.rebuild("geo", paged(entries(1000)))
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1mb")
        assert await warm.take("geo", 1) == entries(1), "taking needs no memory"
        assert "maxmemory" in await refused(lambda: warm.add(entries(1, first=5000)))
        await refused(warm.sizes, 0.1)
        client.config_set("maxmemory", "0")
    await until_back(warm)
    assert await warm.sizes() == {"geo": 999}, "what was refused was refused as a whole"


async def test_a_server_that_evicts_shows_it_in_its_sizes_or_its_marker(
    warm: ValkeyWarm, valkey_server: ValkeyServer
) -> None:
    await warm.rebuild("geo", paged(entries(5000)))
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used - 200_000)
        for number in range(200):
            client.set(f"other-{number}", "x" * 10_000)
    sizes, marker = await warm.sizes(), await warm.marker()
    assert sizes.get("geo", 0) < 5000 or not marker
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.config_set("maxmemory", "0")
    await warm.rebuild("geo", paged(entries(5000)))
    assert await warm.sizes() == {"geo": 5000}
    assert await warm.take("geo", 10_000) == entries(5000)


async def test_a_frozen_server_costs_one_time_limit_and_then_nothing(
    warm: ValkeyWarm, valkey_server: ValkeyServer
) -> None:
    await warm.add(entries(10))
    valkey_server.pause()
    try:
        assert "0.5 s" in await refused(lambda: warm.take("geo", 4))
        for _ in range(100):
            await refused(lambda: warm.take("geo", 1), 0.5)  # less than the limit: none of them waits for the server
    finally:
        valkey_server.resume()
    await until_back(warm)
    left = await warm.take("geo", 100)
    # The server may have done what it was sent while it was frozen: these four are then missed in its sizes.
    assert left in (entries(10), entries(6, first=5))


async def test_a_late_answer_is_not_taken_for_another_calls(warm: ValkeyWarm, valkey_server: ValkeyServer) -> None:
    await warm.add(entries(50))
    valkey_server.pause()
    try:
        calls = [asyncio.create_task(warm.take("geo", 1)) for _ in range(10)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        valkey_server.resume()
    assert all(isinstance(result, WarmUnavailable) for result in results)
    await until_back(warm)
    assert await warm.marker() == ""
    assert set(await warm.sizes()) == {"geo"}
    taken = [one.place for _ in range(60) for one in await warm.take("geo", 1)]
    assert taken == sorted(set(taken))
    assert taken[-1] == 50


async def test_a_call_that_is_given_up_leaves_the_connection_usable(
    warm: ValkeyWarm, valkey_server: ValkeyServer
) -> None:
    await warm.add(entries(10))
    valkey_server.pause()
    try:
        call = asyncio.create_task(warm.take("geo", 4))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    finally:
        valkey_server.resume()
    await until_back(warm)
    assert (await warm.take("geo", 100))[-1] == entries(10)[-1]


async def test_a_connection_cut_after_the_server_did_its_work(valkey_server: ValkeyServer) -> None:
    async with TcpProxy(valkey_server.url) as proxy:
        warm = ValkeyWarm(proxy.url)
        try:
            await warm.add(entries(10))
            proxy.cut_after(b":0:00000001")
            assert await refused(lambda: warm.take("geo", 4))
            assert proxy.cuts == 1
            await until_back(warm)
            assert await warm.sizes() == {"geo": 6}, "the four are gone from the tier, and found by counting"
            assert await warm.take("geo", 100) == entries(6, first=5)
        finally:
            await warm.close()


async def test_a_network_that_swallows_everything(valkey_server: ValkeyServer) -> None:
    async with TcpProxy(valkey_server.url) as proxy:
        warm = ValkeyWarm(proxy.url)
        try:
            await warm.add(entries(3))
            proxy.is_black_hole = True
            await refused(lambda: warm.take("geo", 1))
            await refused(lambda: warm.take("geo", 1), 0.1)
            proxy.is_black_hole = False
            await until_back(warm)
            assert (await warm.take("geo", 9))[-1] == entries(3)[-1]
        finally:
            await warm.close()


async def test_a_password_is_not_told(valkey_server: ValkeyServer) -> None:
    with valkey.Valkey.from_url(valkey_server.url) as client:
        client.config_set("requirepass", "right")
    warm = ValkeyWarm(valkey_server.url.replace("valkey://", "valkey://:wrong-secret@"))
    try:
        with pytest.raises(WarmUnavailable) as caught:
            await warm.sizes()
        assert "wrong-secret" not in str(caught.value)
        assert str(valkey_server.port) in str(caught.value)
    finally:
        await warm.close()
