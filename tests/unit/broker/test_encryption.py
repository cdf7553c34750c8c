"""Encrypted queues: nothing in clear reaches the store, and what comes out is what went in."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fixtures.arrow_steps import payloads, stage
from forebay.broker.bulk import StagesOf
from forebay.broker.encryption import Address, Cipher, cipher_from, is_sealed, plain_form, stored_form
from forebay.broker.messages import PopRequest
from forebay.broker.sealed_store import SealedStore
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.errors import PayloadInClear, PayloadSealed, Permanent
from forebay.model.ids import replay_id
from forebay.model.push_run import run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
HERE = Address("q", "p", "t")
SECRET = b'{"card": "4111-1111-1111-1111"}'


@pytest.mark.parametrize("payload", [b"", b"{}", b"\0FBE1 looks sealed", b"\0FBE0", SECRET, bytes(10_000)])
@pytest.mark.parametrize("cipher", [None, Cipher(KEY)])
def test_what_is_stored_comes_back(payload: bytes, cipher: Cipher | None) -> None:
    assert plain_form(stored_form(payload, HERE, cipher), HERE, cipher or Cipher(KEY)) == payload


def test_the_same_payload_never_looks_the_same() -> None:
    cipher = Cipher(KEY)
    assert stored_form(SECRET, HERE, cipher) != stored_form(SECRET, HERE, cipher)
    with pytest.raises(PayloadSealed, match="there is no key"):
        plain_form(stored_form(SECRET, HERE, cipher), HERE, None)


@pytest.mark.parametrize("other", [Address("other", "p", "t"), Address("q", "other", "t"), Address("q", "p", "other"),
                                   Address("q:p", "", "t"), Address("qp", "", "t")])  # fmt: skip
def test_sealed_payload_belongs_to_its_message(other: Address) -> None:
    with pytest.raises(PayloadSealed, match="for another message"):
        plain_form(stored_form(SECRET, HERE, Cipher(KEY)), other, Cipher(KEY))


def test_replayed_message_is_opened_under_its_new_id() -> None:
    once = replay_id(HERE.transaction_id)
    for replayed in (once, replay_id(once)):
        address = HERE._replace(transaction_id=replayed)
        assert plain_form(stored_form(SECRET, HERE, Cipher(KEY)), address, Cipher(KEY)) == SECRET


def test_keys_are_rotated_by_putting_a_new_one_in_front() -> None:
    sealed_before = stored_form(SECRET, HERE, Cipher(KEY))
    rotated = Cipher(OTHER_KEY, KEY)
    assert plain_form(sealed_before, HERE, rotated) == SECRET
    sealed_since = stored_form(SECRET, HERE, rotated)
    assert plain_form(sealed_since, HERE, Cipher(OTHER_KEY)) == SECRET
    with pytest.raises(PayloadSealed, match="with another key"):
        plain_form(sealed_since, HERE, Cipher(KEY))


def test_payload_of_an_earlier_version_is_opened() -> None:
    nonce = bytes(12)
    stored = b"\0FBE1" + nonce + AESGCM(KEY).encrypt(nonce, SECRET, b"q")
    assert is_sealed(stored)
    assert plain_form(stored, HERE, Cipher(OTHER_KEY, KEY)) == SECRET
    with pytest.raises(PayloadSealed):
        plain_form(stored, HERE, Cipher(OTHER_KEY))


@pytest.mark.parametrize("size", range(30))
def test_sealed_payload_that_is_cut_short_is_refused(size: int) -> None:
    stored = stored_form(b"", HERE, Cipher(KEY))
    with pytest.raises(PayloadSealed):
        plain_form(b"\0FBE2" + stored[5 : 5 + size], HERE, Cipher(KEY))


def test_the_key_comes_from_the_environment_or_a_file_and_is_checked(tmp_path: Path) -> None:
    assert cipher_from({}, None) is None
    assert cipher_from({"QUEEN_ENCRYPTION_KEY": KEY.hex()}, None) is not None
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    assert cipher_from({}, tmp_path / "key") is not None
    (tmp_path / "keys").write_text(f"# the new one, then the old\n{OTHER_KEY.hex()}\n\n  {KEY.hex()}\n")
    rotated = cipher_from({}, tmp_path / "keys")
    assert rotated is not None
    assert plain_form(stored_form(SECRET, HERE, Cipher(KEY)), HERE, rotated) == SECRET
    assert plain_form(stored_form(SECRET, HERE, rotated), HERE, Cipher(OTHER_KEY)) == SECRET
    two = cipher_from({"FOREBAY_ENCRYPTION_KEY": f"{OTHER_KEY.hex()}, {KEY.hex()}"}, None)
    assert two is not None
    assert plain_form(stored_form(SECRET, HERE, Cipher(KEY)), HERE, two) == SECRET
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for bad in ("empty", "binary", "nowhere"):
        with pytest.raises(Permanent, match=bad):
            cipher_from({}, tmp_path / bad)
    for wrong in ("00", "zz" * 32):
        with pytest.raises(Permanent, match="openssl rand -hex 32"):
            cipher_from({"FOREBAY_ENCRYPTION_KEY": wrong}, None)


async def test_nothing_of_an_encrypted_queue_is_on_the_disk_in_clear(tmp_path: Path) -> None:
    store = SealedStore(EmbeddedStore(tmp_path), Cipher(KEY))
    await store.open(lambda queue, count: None)
    await store.configure("cards", QueueOptions(encryption_enabled=True), "", "")
    await store.push([run_of_one("cards", "p", SECRET, "t1")])
    outcome = await store.transact([run_of_one("cards", "p", SECRET, "t2")], [])
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
        await store.push([run_of_one("cards", "p", SECRET, "t1")])
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
        await store.commit_stages(StagesOf("spark", queue), [staged.stage_id])
        assert await payloads(cast(Store, store), queue) == rows
    assert all(is_sealed(payload) for payload in await payloads(cast(Store, inner), "secret"))
    assert (await payloads(cast(Store, inner), "open"))[0] == rows[0]
