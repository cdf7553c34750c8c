"""The store's keys as this server knew them last, in a file of its data directory.

A server may start while its database is away, and takes pushes all the same. Without this file it would not know then
whether keys are needed, and which. It holds digests, never keys; it is written anew, in one step, whenever the keys
have changed, and readable by its owner alone.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from forebay.access.values import KeyInfo, Keys
from forebay.filesystem import FILE_MODE

NAME = "known-keys.json"

_log = logging.getLogger("forebay.api")


class _Known(msgspec.Struct):
    is_in_force: bool
    keys: list[KeyInfo]


class KnownKeys:
    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> Keys:
        """None in force where there is no file. One that cannot be read leaves the server closed, not open."""
        try:
            known = msgspec.json.decode(self._path.read_bytes(), type=_Known)
        except FileNotFoundError:
            return Keys(-1, False, (), 0)
        except (OSError, msgspec.DecodeError) as error:
            _log.error("%s: %s; until the store is there no key counts", self._path, error, extra={"action": "keys"})
            return Keys(-1, True, (), 0)
        return Keys(-1, known.is_in_force, known.keys, 0)

    def write(self, keys: Keys) -> None:
        """A disk that refuses is logged: the keys count all the same."""
        fresh = self._path.with_suffix(".new")
        try:
            if not keys.is_in_force and not keys.keys:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_Known(keys.is_in_force, list(keys.keys))))
            fresh.replace(self._path)
        except OSError as error:
            _log.warning("%s is not written: %s", self._path, error, extra={"action": "keys"})
