"""Leases are renewed for as long as the handler works, whatever becomes of a single renewal."""

from __future__ import annotations

import asyncio

import pytest

from forebay.client import AsyncClient, Message, Refused, Unreachable
from forebay.client.keeping import RETRY_SECONDS_MAX, keep_leases
from unit.client.hand_made_server import DELIVERY, answer, serving

RENEWED = answer(200, [{"success": True}])


async def test_renewal_that_fails_is_not_the_last_one() -> None:
    renewals = 0

    def script(number: int, request: bytes) -> list[bytes] | None:
        nonlocal renewals
        if b"/extend" not in request:
            return [DELIVERY if number == 1 else answer(204, None)] if b"/pop/" in request else [answer(200, [{}])]
        renewals += 1
        return None if renewals == 1 else [answer(503, "no")] if renewals == 2 else [RENEWED]

    async with serving(script) as (peer, url), AsyncClient(url, attempts=1) as client:

        async def handler(message: Message) -> None:
            await peer.until_asked(6)

        consuming = asyncio.create_task(client.consume("q", handler, renew_every_seconds=0.02))
        await asyncio.wait_for(peer.until_asked(6), 5)
        assert renewals >= 5
        consuming.cancel()


class Leases:
    """Answers renewals as it is told, and then that the lease is lost."""

    def __init__(self, **outcomes: list[bool | Exception]) -> None:
        self.outcomes = outcomes
        self.renewed: list[tuple[str, int]] = []

    async def renew(self, lease_id: str, seconds: int) -> bool:
        self.renewed.append((lease_id, seconds))
        outcome = self.outcomes[lease_id].pop(0) if self.outcomes[lease_id] else False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none of them takes any time."""
    found: list[float] = []
    step = asyncio.sleep

    async def noted(seconds: float) -> None:
        found.append(seconds)
        await step(0)

    monkeypatch.setattr("forebay.client.keeping.asyncio.sleep", noted)
    return found


async def test_server_that_is_not_reached_is_asked_again_soon(pauses: list[float]) -> None:
    away = Unreachable("nobody answers")
    leases = Leases(a=[True, away, away, True])
    await keep_leases(leases.renew, ["a"], 20)
    assert pauses == [20, 20, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX, 20]
    assert leases.renewed == [("a", 60)] * 5


async def test_error_with_one_lease_is_logged_and_ends_the_renewing_of_none(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    leases = Leases(a=[Refused(401, "who are you"), True], b=[True, True, True], c=[ValueError("no JSON"), True])
    await keep_leases(leases.renew, ["a", "b", "c"], 20)
    counts = {name: leases.renewed.count((name, 60)) for name in "abc"}
    assert counts == {"a": 3, "b": 4, "c": 3}, "each until the server says that it is lost"
    told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert told == ["the server refused the request (401): who are you", "no JSON"]
