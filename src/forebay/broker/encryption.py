"""Encrypted queues: payloads are sealed before they reach the store and opened after they leave it.

A sealed payload is::

    offset  size  field
    0       5     b"\\0FBE2": no JSON text starts with a NUL, so a plain payload is never taken for a sealed one
    5       8     the key's id: the first bytes of its SHA-256
    13      12    nonce, random
    25      n+16  AES-256-GCM of the payload; queue, partition and transactionId are authenticated with it, so that
                  what is sealed for one message cannot be put in the place of another

Those that start with `b"\\0FBE1"` are of earlier versions: no key id, and of the three only the queue is authenticated.
Bytes that are not JSON may start with anything; those that start with `b"\\0FBE"` are stored behind `b"\\0FBE0"`.

**Keys** are 64 hexadecimal digits each, from the file that `server.encryption_key_file` names, one on a line, or from
the environment (`FOREBAY_ENCRYPTION_KEY`, or Queen's `QUEEN_ENCRYPTION_KEY`), with commas between. The first one seals,
all of them open: to rotate, put a new one in front and keep the old ones for as long as messages are sealed with them.
Without a key no queue can be made encrypted, and nothing is ever stored in clear in its place. What cannot be opened is
not claimed: it waits, with all its attempts, for a server that has the key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from forebay.errors import PayloadSealed, Permanent
from forebay.model.ids import id_before_replay

KEY_VARIABLES = ("FOREBAY_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEY")
MARK = b"\0FBE"
"""What a payload starts with that is sealed, or looks like it."""
SEALED_MARK = b"\0FBE2"
_SEALED_FOR_A_QUEUE = b"\0FBE1"
SEALED_MARKS = (SEALED_MARK, _SEALED_FOR_A_QUEUE)
_PLAIN = b"\0FBE0"
_MARK_BYTES = 5
_ID_BYTES = 8
_NONCE_BYTES = 12
_KEY_BYTES = 32
_ADVICE = f"Set {KEY_VARIABLES[0]} to 64 hexadecimal digits, as `openssl rand -hex 32` prints them"


class Address(NamedTuple):
    """The message that a payload belongs to."""

    queue: str
    partition: str
    transaction_id: str

    def authenticated(self) -> bytes:
        # A message that is replayed has another id and the same payload. Lengths, so that no two addresses look alike.
        parts = [self.queue, self.partition, id_before_replay(self.transaction_id)]
        return b"".join(b"%d:%b" % (len(text), text) for text in (part.encode() for part in parts))


class Cipher:
    def __init__(self, *keys: bytes) -> None:
        """The first key seals, all of them open."""
        for key in keys:
            if len(key) != _KEY_BYTES:
                raise Permanent(f"an encryption key has {_KEY_BYTES} bytes, not {len(key)}", remedy=_ADVICE)
        self._ciphers = {hashlib.sha256(key).digest()[:_ID_BYTES]: AESGCM(key) for key in keys}
        self._sealing_id = next(iter(self._ciphers))

    def seal(self, payload: bytes, address: Address) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._sealing_id].encrypt(nonce, payload, address.authenticated())
        return SEALED_MARK + self._sealing_id + nonce + sealed

    def open(self, stored: bytes, address: Address) -> bytes:
        if stored.startswith(_SEALED_FOR_A_QUEUE):
            return self._open_sealed_for_a_queue(stored, address.queue)
        start = _MARK_BYTES + _ID_BYTES
        key_id = stored[_MARK_BYTES:start]
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise PayloadSealed(address.queue, f"with another key (id {key_id.hex()})")
        try:
            nonce, sealed = stored[start : start + _NONCE_BYTES], stored[start + _NONCE_BYTES :]
            return cipher.decrypt(nonce, sealed, address.authenticated())
        except (InvalidTag, ValueError):
            raise PayloadSealed(address.queue, "for another message, or is damaged") from None

    def _open_sealed_for_a_queue(self, stored: bytes, queue: str) -> bytes:
        start = _MARK_BYTES + _NONCE_BYTES
        for cipher in self._ciphers.values():
            try:
                return cipher.decrypt(stored[_MARK_BYTES:start], stored[start:], queue.encode())
            except (InvalidTag, ValueError):
                continue
        raise PayloadSealed(queue, "with another key, or is damaged")


def cipher_from(environ: Mapping[str, str], file: Path | None) -> Cipher | None:
    """The cipher whose keys the file or the environment holds; None when there is no key."""
    if file is not None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Permanent(f"{file}: the encryption keys cannot be read: {reason}", remedy=_ADVICE) from error
        words = [line.strip() for line in text.splitlines() if not line.lstrip().startswith("#")]
    else:
        words = next((environ[v] for v in KEY_VARIABLES if environ.get(v)), "").split(",")
    keys = [word.strip() for word in words if word.strip()]
    if not keys and file is not None:
        raise Permanent(f"{file}: there is no encryption key in it", remedy=_ADVICE)
    return Cipher(*_decoded(keys)) if keys else None


def _decoded(keys: Sequence[str]) -> list[bytes]:
    try:
        return [bytes.fromhex(key) for key in keys]
    except ValueError:
        raise Permanent("the encryption key is not hexadecimal", remedy=_ADVICE) from None


def is_sealed(stored: bytes) -> bool:
    return stored.startswith(SEALED_MARKS)


def stored_form(payload: bytes, address: Address, cipher: Cipher | None) -> bytes:
    """What goes to the store; `cipher` is that of an encrypted queue."""
    if cipher is not None:
        return cipher.seal(payload, address)
    return _PLAIN + payload if payload.startswith(MARK) else payload


def plain_form(stored: bytes, address: Address, cipher: Cipher | None) -> bytes:
    """What came in, from what the store gave back."""
    if not stored.startswith(MARK):
        return stored
    if stored.startswith(_PLAIN):
        return stored[len(_PLAIN) :]
    if cipher is None:
        raise PayloadSealed(address.queue, "and there is no key")
    return cipher.open(stored, address)
