"""Keys in the store itself, changed without a server.

The first key of a fresh data directory has to be made before a server is reachable by others, and a server whose last
admin key is lost has to be opened again. An embedded store is one process's at a time, so that is for when no server
runs; a database can be changed beside its servers, which notice within two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from forebay.access import audit, keys
from forebay.access.digests import new_key
from forebay.access.values import AuditEntry, KeyInfo, NewKey
from forebay.api.routes.keys import key_shape
from forebay.assemble import broker_store
from forebay.broker.room_work import Work
from forebay.broker.store import Store
from forebay.cli.key_stores import Document
from forebay.cli.usable_paths import writable_directory
from forebay.config.model import Settings
from forebay.errors import LogLocked, Permanent

T = TypeVar("T")
COMMAND_LINE = "command line"


class StoredKeys:
    """Those of a store, opened for each change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def listed(self, *, revoked: bool) -> list[Document]:
        found = self._done(keys.read)
        return [_document(key, found.now_us) for key in found.keys if revoked or key.revoked_us is None]

    def create(self, wanted: NewKey) -> Document:
        key, digest = new_key()
        return self._made(key, "create", wanted.name, partial(keys.create, wanted, digest))

    def rotate(self, key_id: str, grace_seconds: float) -> Document:
        key, digest = new_key()
        return self._made(key, "rotate", key_id, partial(keys.rotate, key_id, digest, grace_seconds))

    def revoke(self, key_id: str) -> None:
        self._done(_noted("revoke", key_id, partial(keys.revoke, key_id)))

    def disable(self) -> int:
        """Remove all keys; how many."""
        return self._done(_noted("disable", "all keys", keys.forget_all))

    def _made(self, key: str, action: str, subject: str, begin: Callable[[], Work[KeyInfo]]) -> Document:
        info = self._done(_noted(action, subject, begin))
        return {"key": key, "info": _document(info, info.created_us)}

    def _done(self, begin: Callable[[], Work[T]]) -> T:
        if self._settings.server.store == "embedded":
            writable_directory(self._settings.data_dir, "data_dir")
        store, _ = broker_store(self._settings)
        try:
            return asyncio.run(_run(store, begin))
        except LogLocked as locked:
            raise Permanent(
                f"{self._settings.data_dir} is open in {locked.owner}",
                remedy="Talk to that server instead: leave --data-dir out, or name it with --url",
            ) from locked


async def _run(store: Store, begin: Callable[[], Work[T]]) -> T:
    await store.open(lambda queue, count: None)
    try:
        return await store.together(begin)
    finally:
        await store.close()


def _noted(action: str, subject: str, begin: Callable[[], Work[T]]) -> Callable[[], Work[T]]:
    """The same, and a line in the audit log with it."""
    entry = AuditEntry("", COMMAND_LINE, action.upper(), f"forebay keys {action}", subject, "", 200)

    def work() -> Work[T]:
        result = yield from begin()
        yield from audit.note(entry)
        return result

    return work


def _document(key: KeyInfo, now_us: int) -> Document:
    return dict(msgspec.to_builtins(key_shape(key, now_us)))
