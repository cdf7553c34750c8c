"""Encrypted queues: nothing in clear reaches the store, and what comes out is what went in."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fixtures.arrow_steps import payloads, stage
from forebay.broker.encryption import Cipher, cipher_from, is_sealed, plain_form, stored_form
from forebay.broker.messages import PopRequest, PushItem
from forebay.broker.sealed_store import SealedStore
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.errors import PayloadInClear, Permanent
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

KEY = bytes(range(32))
SECRET = b'{"card": "4111-1111-1111-1111"}'


@pytest.mark.parametrize("payload", [b"", b"{}", b"\0FBE1 looks sealed", b"\0FBE0", SECRET, bytes(10_000)])
@pytest.mark.parametrize("cipher", [None, Cipher(KEY)])
def test_what_is_stored_comes_back(payload: bytes, cipher: Cipher | None) -> None:
    assert plain_form(stored_form(payload, "q", cipher), "q", cipher or Cipher(KEY)) == payload


def test_the_same_payload_never_looks_the_same_and_belongs_to_its_queue() -> None:
    cipher = Cipher(KEY)
    assert stored_form(SECRET, "q", cipher) != stored_form(SECRET, "q", cipher)
    with pytest.raises(Permanent, match="sealed with another key"):
        plain_form(stored_form(SECRET, "q", cipher), "other", cipher)
    with pytest.raises(Permanent, match="there is no key"):
        plain_form(stored_form(SECRET, "q", cipher), "q", None)


def test_the_key_comes_from_the_environment_or_a_file_and_is_checked(tmp_path: Path) -> None:
    assert cipher_from({}, None) is None
    assert cipher_from({"QUEEN_ENCRYPTION_KEY": KEY.hex()}, None) is not None
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    assert cipher_from({}, tmp_path / "key") is not None
    for wrong in ("00", "zz" * 32):
        with pytest.raises(Permanent, match="openssl rand -hex 32"):
            cipher_from({"FOREBAY_ENCRYPTION_KEY": wrong}, None)


async def test_nothing_of_an_encrypted_queue_is_on_the_disk_in_clear(tmp_path: Path) -> None:
    store = SealedStore(EmbeddedStore(tmp_path), Cipher(KEY))
    await store.open(lambda queue, count: None)
    await store.configure("cards", QueueOptions(encryption_enabled=True), "", "")
    await store.push([PushItem("cards", "p", SECRET, "t1")])
    outcome = await store.transact([PushItem("cards", "p", SECRET, "t2")], [])
    assert not outcome.error
    popped = await store.pop(PopRequest("cards", batch=9))
    assert [message.payload for message in popped.messages] == [SECRET, SECRET]
    assert [message.payload for message in await store.read("cards", 1, 9)] == [SECRET, SECRET]
    await store.close()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"4111" not in path.read_bytes(), path


async def test_without_a_key_nothing_is_accepted_for_an_encrypted_queue(tmp_path: Path) -> None:
    sealed = SealedStore(EmbeddedStore(tmp_path), Cipher(KEY))
    await sealed.open(lambda queue, count: None)
    await sealed.configure("cards", QueueOptions(encryption_enabled=True), "", "")
    await sealed.close()
    store = SealedStore(EmbeddedStore(tmp_path), None)
    await store.open(lambda queue, count: None)
    with pytest.raises(PayloadInClear, match="has no key"):
        await store.push([PushItem("cards", "p", SECRET, "t1")])
    with pytest.raises(PayloadInClear):
        await store.configure("more", QueueOptions(encryption_enabled=True), "", "")
    assert await store.read("cards", 1, 9) == []
    await store.close()


async def test_staged_rows_of_an_encrypted_queue_are_sealed_and_come_back_plain() -> None:
    inner = MemoryStore(FakeClock())
    store = SealedStore(cast(Store, inner), Cipher(KEY))
    await store.configure("secret", QueueOptions(encryption_enabled=True), "", "")
    rows = [b'{"a":1}', b"\0FBE1 looks sealed"]
    for queue in ("secret", "open"):
        staged = await stage(cast(Store, store), *rows, queue=queue, epoch=queue)
        await store.commit_stages("spark", queue, [staged.stage_id])
        assert await payloads(cast(Store, store), queue) == rows
    assert all(is_sealed(payload) for payload in await payloads(cast(Store, inner), "secret"))
    assert (await payloads(cast(Store, inner), "open"))[0] == rows[0]
