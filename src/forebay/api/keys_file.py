"""The keys file: keys beside those of the store, as JSON or YAML, read again when it changes.

    keys:
      - name: loader
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        scope: write          # read | write | consume | admin

It is older than keys in the store, and its words mean what they meant: `write` includes `read` and `consume`, seeks,
and deletes single messages (`forebay.access.scopes`). Its keys are for all queues.

One that cannot be used when it changes, changes nothing: the keys that were in force stay so, and the log says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forebay.access.scopes import FILE_BITS, Scope
from forebay.api.callers import Caller
from forebay.errors import Permanent

ID_PREFIX = "file:"


class KeysRefused(Permanent):
    """The file with the API keys cannot be used. The server does not start: rights are not guessed."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    sha256: str
    scope: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[_Entry]


def read_keys(path: Path) -> dict[str, Caller]:
    """By digest. A fault in the file is raised with its place."""
    import yaml  # JSON is YAML too, so one reader does for both

    try:
        document: Any = yaml.safe_load(path.read_text())
        listed = msgspec.convert(document, _File).keys
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise KeysRefused(f"{path}: {error}") from error
    callers = [_caller(path, index, entry) for index, entry in enumerate(listed)]
    if not callers:
        raise KeysRefused(f"{path}: there is no key in it", remedy="Without keys, leave the setting out")
    return {caller.digest: caller for caller in callers}


def has_admin(callers: Mapping[str, Caller]) -> bool:
    return any(caller.bits & Scope.ADMIN for caller in callers.values())


def _caller(path: Path, index: int, entry: _Entry) -> Caller:
    if entry.scope not in FILE_BITS:
        raise KeysRefused(f"{path}: keys[{index}].scope: {entry.scope!r} is none of {', '.join(FILE_BITS)}")
    try:
        digest = bytes.fromhex(entry.sha256)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise KeysRefused(f"{path}: keys[{index}].sha256 is not a SHA-256 digest of 64 hexadecimal digits")
    return Caller(f"{ID_PREFIX}{entry.name}", entry.name, FILE_BITS[entry.scope], digest=digest.hex())


class KeysFile:
    """The file that the keys are from, looked at again when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()

    def read(self) -> dict[str, Caller]:
        self._seen = file_state(self.path)
        return read_keys(self.path)

    def read_if_changed(self) -> dict[str, Caller] | None:
        """What is wrong with the file is raised once, until it changes again."""
        return self.read() if file_state(self.path) != self._seen else None


def file_state(path: Path) -> tuple[int, ...]:
    """Differs when the file was written or replaced; empty when it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
