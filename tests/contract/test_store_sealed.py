"""The contract of a store behind `SealedStore`: a server without the right key destroys nothing."""

from __future__ import annotations

import pytest

from fixtures.store_steps import configure, finish, ids, item, take, taken_ids
from forebay.broker.delivery import FAILED
from forebay.broker.encryption import Cipher
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.sealed_store import SealedStore
from forebay.broker.store import Store
from forebay.errors import PayloadSealed
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def bare(store: Store, variant: Store) -> Store:
    """A store that is open, with nothing in front of it."""
    return variant


def sealed(store: Store, cipher: Cipher | None) -> Store:
    return SealedStore(store, cipher)


@pytest.mark.parametrize("cipher", [None, Cipher(OTHER_KEY)], ids=["no key", "wrong key"])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_pop_without_the_key_claims_nothing(bare: Store, cipher: Cipher | None, auto_ack: bool) -> None:
    right = sealed(bare, Cipher(KEY))
    await configure(right, QueueOptions(encryption_enabled=True, retry_limit=1))
    await right.push([item(text, payload=b'"secret"') for text in "ab"])
    for _ in range(3):  # more often than a message may be delivered
        with pytest.raises(PayloadSealed):
            await take(sealed(bare, cipher), auto_ack=auto_ack)
    popped = await take(right)
    assert [(m.transaction_id, m.payload, m.attempts) for m in popped.messages] == [
        ("a", b'"secret"', 1),
        ("b", b'"secret"', 1),
    ]
    assert await bare.dead_letters(DeadLetterFilter(), 9, 0) == ([], 0)


async def test_redelivery_without_the_key_claims_nothing(bare: Store, clock: FakeClock) -> None:
    right = sealed(bare, Cipher(KEY))
    await configure(right, QueueOptions(encryption_enabled=True, retry_limit=1, retry_delay_ms=0))
    await right.push([item("a", payload=b"1")])
    await finish(right, await take(right), FAILED)
    for _ in range(3):
        with pytest.raises(PayloadSealed):
            await take(sealed(bare, None))
    assert [message.attempts for message in (await take(right)).messages] == [2]


async def test_message_that_cannot_be_opened_costs_no_other_its_attempts(bare: Store) -> None:
    """One pop over several partitions: those that it had claimed already are not claimed either."""
    right = sealed(bare, Cipher(KEY))
    await right.push([item("plain", "p1", payload=b"1")])
    await configure(right, QueueOptions(encryption_enabled=True))
    await right.push([item("secret", "p2", payload=b"2")])
    with pytest.raises(PayloadSealed):
        await take(sealed(bare, None), partitions=2)
    popped = await take(right, partitions=2)
    assert sorted((m.transaction_id, m.attempts) for m in popped.messages) == [("plain", 1), ("secret", 1)]


async def test_replayed_dead_letter_of_an_encrypted_queue_is_opened(bare: Store) -> None:
    right = sealed(bare, Cipher(KEY))
    await configure(right, QueueOptions(encryption_enabled=True, retry_limit=0))
    await right.push([item("a", payload=b'"secret"')])
    await finish(right, await take(right), FAILED)
    assert await right.replay_dead_letters(DeadLetterFilter()) == 1
    popped = await take(right)
    assert [message.payload for message in popped.messages] == [b'"secret"']
    assert ids(popped)[0].startswith("a#replay-")
    await finish(right, popped)
    assert await taken_ids(right) == []
