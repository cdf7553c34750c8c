"""A transaction whose answer was lost: the client claims what it knows, and no more."""

from __future__ import annotations

import pytest

from forebay.client import AsyncClient, OutcomeUnknown, Refused, TransactionFailed, Unreachable
from unit.client.hand_made_server import OK, Script, answer, serving

REFUSED = answer(200, {"success": False, "error": "Invalid or expired lease", "results": []})
DONE = answer(200, {"success": True, "results": [{"index": 0}]})
WRONG = answer(400, {"detail": "not like this"})
NOT_DONE = answer(503, {"detail": "stopping", "outcomeUnknown": False})
PERHAPS_DONE = answer(503, {"detail": "no answer from the store", "outcomeUnknown": True})
LOST = None
SILENCE: list[bytes] = []


def steps(*pieces: list[bytes] | None) -> Script:
    return lambda number, request: pieces[number - 1]


def impatient(*urls: str, attempts: int = 2) -> AsyncClient:
    return AsyncClient(*urls, attempts=attempts, first_pause_seconds=0.01, timeout_seconds=0.3)


@pytest.mark.parametrize(
    "first",
    [LOST, SILENCE, [b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nha", b""], [answer(502, "?")], [PERHAPS_DONE]],
    ids=["connection lost", "silence", "half an answer", "proxy lost the server", "store did not answer"],
)
@pytest.mark.parametrize("second", [REFUSED, WRONG], ids=["lease gone", "refused"])
async def test_refusal_after_a_lost_answer_is_no_proof_that_nothing_happened(
    first: list[bytes] | None, second: bytes
) -> None:
    async with serving(steps(first, [second])) as (peer, url), impatient(url) as client:
        with pytest.raises(OutcomeUnknown, match=r"may or may not have happened.*(expired lease|not like this)"):
            await client.transaction().push("q", 1).commit()
        assert len(peer.requests) == 2


async def test_try_on_a_kept_connection_that_ended_counts_as_sent() -> None:
    async with serving(steps([OK], LOST, [REFUSED])) as (peer, url), impatient(url, attempts=1) as client:
        await client._transport.request("GET", "/")
        with pytest.raises(OutcomeUnknown):
            await client.transaction().push("q", 1).commit()
        assert len(peer.requests) == 3


async def test_commit_that_is_called_again_remembers_that_its_answer_was_lost() -> None:
    async with serving(steps(LOST, [REFUSED])) as (_, url), impatient(url, attempts=1) as client:
        transaction = client.transaction().push("q", 1)
        with pytest.raises(Unreachable):
            await transaction.commit()
        with pytest.raises(OutcomeUnknown):
            await transaction.commit()


async def test_refusal_of_the_only_try_that_reached_a_server_is_certain() -> None:
    async with serving(steps([REFUSED])) as (_, url), impatient("http://127.0.0.1:9", url) as client:
        with pytest.raises(TransactionFailed, match=r"^Invalid or expired lease$"):
            await client.transaction().push("q", 1).commit()
    async with serving(steps([NOT_DONE], [REFUSED])) as (_, url), impatient(url) as client:
        with pytest.raises(TransactionFailed):
            await client.transaction().push("q", 1).commit()
    async with serving(steps([WRONG])) as (_, url), impatient(url) as client:
        with pytest.raises(Refused, match="not like this"):
            await client.transaction().push("q", 1).commit()


async def test_transaction_that_is_done_by_the_second_try_is_done() -> None:
    async with serving(steps(LOST, [DONE])) as (_, url), impatient(url) as client:
        assert await client.transaction().push("q", 1).commit() == [{"index": 0}]
