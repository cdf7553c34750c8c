"""Encrypted queues: payloads are sealed before they reach the store and opened after they leave it.

A sealed payload is::

    offset  size  field
    0       5     b"\\0FBE1": no JSON text starts with a NUL, so a plain payload is never taken for a sealed one
    5       12    nonce, random
    17      n+16  AES-256-GCM of the payload; the queue's name is authenticated with it

Bytes that are not JSON may start with anything; those that start with `b"\\0FBE"` are stored behind `b"\\0FBE0"`.
The key is 64 hexadecimal digits from the environment (`FOREBAY_ENCRYPTION_KEY`, or Queen's `QUEEN_ENCRYPTION_KEY`) or
from a file. Without a key no queue can be made encrypted, and nothing is ever stored in clear in its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from forebay.errors import Permanent

KEY_VARIABLES = ("FOREBAY_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEY")
MARK = b"\0FBE"
"""What a payload starts with that is sealed, or looks like it."""
SEALED_MARK = b"\0FBE1"
_PLAIN = b"\0FBE0"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class Cipher:
    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise Permanent(f"an encryption key has {_KEY_BYTES} bytes, not {len(key)}", remedy=_ADVICE)
        self._cipher = AESGCM(key)

    def seal(self, payload: bytes, queue: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return SEALED_MARK + nonce + self._cipher.encrypt(nonce, payload, queue.encode())

    def open(self, stored: bytes, queue: str) -> bytes:
        nonce, sealed = stored[5 : 5 + _NONCE_BYTES], stored[5 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, sealed, queue.encode())
        except InvalidTag:
            raise Permanent(
                f"a message of queue {queue!r} was sealed with another key", remedy="Start with the key that sealed it"
            ) from None


_ADVICE = f"Set {KEY_VARIABLES[0]} to 64 hexadecimal digits, as `openssl rand -hex 32` prints them"


def cipher_from(environ: Mapping[str, str], file: Path | None) -> Cipher | None:
    """The cipher whose key the file or the environment holds; None when there is no key."""
    text = file.read_text().strip() if file else next((environ[v] for v in KEY_VARIABLES if environ.get(v)), "")
    if not text:
        return None
    try:
        return Cipher(bytes.fromhex(text))
    except ValueError:
        raise Permanent("the encryption key is not hexadecimal", remedy=_ADVICE) from None


def is_sealed(stored: bytes) -> bool:
    return stored.startswith(SEALED_MARK)


def stored_form(payload: bytes, queue: str, cipher: Cipher | None) -> bytes:
    """What goes to the store; `cipher` is that of an encrypted queue."""
    if cipher is not None:
        return cipher.seal(payload, queue)
    return _PLAIN + payload if payload.startswith(MARK) else payload


def plain_form(stored: bytes, queue: str, cipher: Cipher | None) -> bytes:
    """What came in, from what the store gave back."""
    if not stored.startswith(MARK):
        return stored
    if stored.startswith(_PLAIN):
        return stored[len(_PLAIN) :]
    if cipher is None:
        raise Permanent(f"a message of queue {queue!r} is encrypted and there is no key", remedy=_ADVICE)
    return cipher.open(stored, queue)
