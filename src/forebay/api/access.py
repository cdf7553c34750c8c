"""Who may do what: API keys with scopes.

Keys are kept in a file (JSON or YAML) as SHA-256 digests; a key itself stands nowhere. A key is 32 random bytes, so a
plain digest is enough: there is nothing to guess.

    keys:
      - name: loader
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        scope: write          # read | write | admin; each includes those before it

A producer's key (`write`) makes queues, and configures one that is there as it is. Giving it other options, clearing
and deleting it needs `admin`: with them messages are lost, or kept in clear.

The file is read again when it changes (`KeysFile`). One that cannot be used then changes nothing: the keys that were in
force stay so, and the log says why.

A request gives its key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Without a file everybody may do everything,
which is why a server without keys listens on this machine only (see `forebay serve`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from forebay.api.problems import Problem
from forebay.errors import Permanent

SCOPES = {"read": 1, "write": 2, "admin": 3}


class KeysRefused(Permanent):
    """The file with the API keys cannot be used. The server does not start: guessing who may do what is no option."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    digest: bytes
    scope: int


@dataclass(frozen=True, slots=True)
class Access:
    keys: Mapping[bytes, Key] = field(default_factory=dict)
    """By digest."""

    def check(self, headers: Iterable[tuple[bytes, bytes]], needed: int) -> None:
        """Raise 401 or 403 unless the request's key allows it."""
        if not self.keys or not needed:
            return
        key = self._key(headers)
        if key.scope < needed:
            names = {number: name for name, number in SCOPES.items()}
            raise Problem(
                403, f"the key {key.name!r} may {names[key.scope]}; this needs {names[needed]}", code="forbidden"
            )

    def _key(self, headers: Iterable[tuple[bytes, bytes]]) -> Key:
        given = _given(headers)
        if given is None:
            raise _unknown("a key is needed: Authorization: Bearer KEY, or X-API-Key: KEY")
        key = self.keys.get(hashlib.sha256(given).digest())
        if key is None:
            raise _unknown("the key is not known")
        return key


def _given(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"x-api-key":
            return value.strip()
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
    return None


def _unknown(detail: str) -> Problem:
    return Problem(401, detail, code="unauthorized", headers=((b"www-authenticate", b"Bearer"),))


def new_key() -> tuple[str, str]:
    """A key, and the digest to put into the file."""
    key = secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    sha256: str
    scope: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[_Entry]


def read_keys(path: Path) -> Access:
    """Read the file; a fault in it is told with its place."""
    import yaml  # JSON is YAML too, so one reader does for both

    try:
        document: Any = yaml.safe_load(path.read_text())
        listed = msgspec.convert(document, _File).keys
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise KeysRefused(f"{path}: {error}") from error
    keys = [_key(path, index, entry) for index, entry in enumerate(listed)]
    if not keys:
        raise KeysRefused(f"{path}: there is no key in it", remedy="Without keys, leave the setting out")
    return Access({key.digest: key for key in keys})


def _key(path: Path, index: int, entry: _Entry) -> Key:
    if entry.scope not in SCOPES:
        raise KeysRefused(f"{path}: keys[{index}].scope: {entry.scope!r} is none of {', '.join(SCOPES)}")
    try:
        digest = bytes.fromhex(entry.sha256)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise KeysRefused(f"{path}: keys[{index}].sha256 is not a SHA-256 digest of 64 hexadecimal digits")
    return Key(entry.name, digest, SCOPES[entry.scope])


class KeysFile:
    """The file that the keys are from, looked at again when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()

    def read(self) -> Access:
        self._seen = self._state()
        return read_keys(self.path)

    def read_if_changed(self) -> Access | None:
        """Whatever is wrong with the file is told once, until it changes again."""
        return self.read() if self._state() != self._seen else None

    def _state(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
