"""Close, in an event loop: what is under way ends, whatever it waits for, and nothing is sent behind it."""

from __future__ import annotations

import asyncio

import pytest

from forebay.client import AsyncClient, ClientClosed, Message
from forebay.client.transport import Transport
from unit.client.hand_made_server import DELIVERY, OK, serving


def patient(url: str) -> Transport:
    """Nothing but a close ends what it waits for within a test."""
    return Transport(
        [url], attempts=3, first_pause_seconds=600, timeout_seconds=600, retry_unhealthy_seconds=1, api_key=None
    )


async def test_request_without_an_answer_ends_and_is_not_sent_again() -> None:
    async with serving(lambda n, request: []) as (peer, url):
        transport = patient(url)
        waiting = asyncio.create_task(transport.request("GET", "/x"))
        await peer.until_asked(1)
        await transport.close()
        with pytest.raises(ClientClosed, match="the client is closed"):
            await asyncio.wait_for(waiting, 60)
        assert (peer.connections, len(peer.requests)) == (1, 1)


async def test_request_on_a_kept_connection_is_not_taken_for_one_that_the_server_ended() -> None:
    async with serving(lambda n, request: [OK] if n != 2 else []) as (peer, url):
        transport = patient(url)
        await transport.request("GET", "/x")
        waiting = asyncio.create_task(transport.request("GET", "/x"))
        await peer.until_asked(2)
        await transport.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, 60)
        assert (peer.connections, len(peer.requests)) == (1, 2)


async def test_pause_before_the_next_try_ends() -> None:
    async with serving(lambda n, request: None) as (peer, url):
        transport = patient(url)
        waiting = asyncio.create_task(transport.request("GET", "/x"))
        while not transport._unhealthy_until:
            await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, 60)
        assert len(peer.requests) == 1


async def test_connecting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = asyncio.Event()

    async def never(*args: object, **options: object) -> None:
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    transport = patient("http://127.0.0.1:9")
    waiting = asyncio.create_task(transport.request("GET", "/x"))
    await connecting.wait()
    await transport.close()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(waiting, 60)


async def test_pushes_that_wait_for_their_turn_end_too_and_later_calls_are_refused() -> None:
    async with serving(lambda n, request: []) as (peer, url):
        client = AsyncClient(url)
        pushes = [asyncio.create_task(client.push("q", n)) for n in range(50)]
        await peer.until_asked(1)
        await client.close()
        found = await asyncio.wait_for(asyncio.gather(*pushes, return_exceptions=True), 60)
        assert {type(outcome) for outcome in found} == {ClientClosed}
        for call in (client.push("q", 1), client.pop("q"), client.transaction().push("q", 1).commit()):
            with pytest.raises(ClientClosed):
                await call
        await client.close()
        assert len(peer.requests) == 1


async def test_handler_that_closes_its_client_ends_consume() -> None:
    async with serving(lambda n, request: [DELIVERY]) as (peer, url):
        client = AsyncClient(url)

        async def handler(message: Message) -> None:
            await client.close()

        with pytest.raises(ClientClosed):
            await asyncio.wait_for(client.consume("q", handler), 60)
        assert len(peer.requests) == 1
