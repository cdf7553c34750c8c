"""Texts that cannot be guessed, and their digests: the only form in which they are kept."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "forebay_"
"""How a key begins, so that people and scanners of sources know one when they see it."""


def new_key() -> tuple[str, str]:
    """A key, and its digest."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, digest_of(key)


def new_session_id() -> tuple[str, str]:
    """The id of a session, and its digest."""
    session_id = secrets.token_urlsafe(32)
    return session_id, digest_of(session_id)


def new_key_id() -> str:
    """What a key is called where its name is not enough. No secret."""
    return secrets.token_hex(6)


def digest_of(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
