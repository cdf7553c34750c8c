"""The keys in force on this server: those of the store and those of the keys file, followed while it runs.

Once a second the file is looked at, and the version of the store's keys is read. What has changed counts from
the next request on, so that no change takes longer than two seconds on any server of the store. Keys that expire, and
the old texts of rotated keys, are taken out at their time. While the store is away, what was read last stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from forebay.access import keys
from forebay.access.values import KeyInfo, Keys
from forebay.api.access import Access
from forebay.api.callers import Caller, caller_with
from forebay.api.keys_file import ID_PREFIX, KeysFile, KeysRefused, has_admin
from forebay.api.known_keys import KnownKeys
from forebay.broker.store import Store
from forebay.clock import Clock

FOLLOW_SECONDS = 1.0
USES_SECONDS = 60.0
"""How often it is noted in the store which keys were used."""

_log = logging.getLogger("forebay.api")


class Keyring:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        file: KeysFile | None = None,
        known: KnownKeys | None = None,
        *,
        is_required: bool = False,
    ) -> None:
        """`is_required`: keys are in force even if there are none, because others than this machine can connect."""
        self.access = Access()
        self.on_change: Callable[[], None] = lambda: None
        """Called when other keys are in force."""
        self.is_behind = False
        """The store's keys could not be read since the server started: which they are now is not known."""
        self._store = store
        self._clock = clock
        self._file = file
        self._known = known
        self._is_required = is_required
        self._of_file: Mapping[str, Caller] = file.read() if file is not None else {}
        self._of_store = known.read() if known is not None else Keys(-1, False, (), 0)
        self._changes_us: int | None = None
        """When a key expires, or an old text ends."""
        self._uses_noted = clock.monotonic()
        self._reading = asyncio.Lock()
        self._put_in_force()

    @property
    def has_keys(self) -> bool:
        return bool(self._of_file) or self._of_store.is_in_force

    @property
    def file_has_admin(self) -> bool:
        return has_admin(self._of_file)

    # what needs no store

    def follow_here(self, *, in_any_case: bool = False) -> None:
        """Take out what has expired, and take the keys from their file if it has changed.

        Where that cannot be used, those in force stay so.
        """
        if self._changes_us is not None and self._clock.now_us() >= self._changes_us:
            self._put_in_force()
        if self._file is None:
            return
        try:
            found = self._file.read() if in_any_case else self._file.read_if_changed()
        except KeysRefused as refused:
            _log.error("the keys in force stay so: %s", refused, extra={"action": "keys_refused"})
            return
        if found is not None:
            self._of_file = found
            self._put_in_force()
            _log.info("%d keys from %s", len(found), self._file.path, extra={"action": "keys_read"})

    # the store

    async def read(self) -> None:
        """Take the keys from the store as they are now."""
        # One after the other: of two that overlap, the older could be put in force last.
        async with self._reading:
            found = await self._store.look(keys.read)
            is_other = found.version != self._of_store.version
            self._of_store = found
            self.is_behind = False
            self._put_in_force()
        if is_other:
            if self._known is not None:
                self._known.write(found)
            _log.info("%d keys from the store", len(found.keys), extra={"action": "keys_read"})

    async def follow(self) -> None:
        """Read the keys again if they have changed, and note which were used."""
        if self.is_behind or await self._store.look(keys.version) != self._of_store.version:
            await self.read()
        if self._clock.monotonic() - self._uses_noted >= USES_SECONDS:
            await self.note_uses()

    async def note_uses(self) -> None:
        self._uses_noted = self._clock.monotonic()
        used = [caller for caller in self.access.callers.values() if caller.is_used]
        for caller in used:
            caller.is_used = False
        ids = sorted({caller.id for caller in used if not caller.id.startswith(ID_PREFIX)})
        if ids:
            await self._store.together(partial(keys.note_uses, ids))

    def _put_in_force(self) -> None:
        now_us = self._clock.now_us()
        callers: dict[str, Caller] = {}
        ends: list[int] = []
        for key in self._of_store.keys:
            for digest, end_us in _texts_of(key):
                if end_us is None or end_us > now_us:
                    # A caller stays the same object, so that its use is not forgotten with each change.
                    callers[digest] = self._caller(key, digest)
                    ends += [] if end_us is None else [end_us]
        self._changes_us = min(ends, default=None)
        is_in_force = self.has_keys or self._is_required
        self.access.replace({**callers, **self._of_file}, is_in_force=is_in_force)
        self.on_change()

    def _caller(self, key: KeyInfo, digest: str) -> Caller:
        fresh = caller_with(key.key_id, key.name, key.scopes, key.queues, digest)
        before = self.access.callers.get(digest)
        fresh.is_used = before is not None and before.is_used
        return fresh


def _texts_of(key: KeyInfo) -> list[tuple[str, int | None]]:
    """The digests by which a key is known, and until when each is; none of a key that is revoked."""
    if key.revoked_us is not None:
        return []
    texts: list[tuple[str, int | None]] = [(key.digest, key.expires_us)]
    if key.previous_digest:
        until_us = key.previous_until_us
        texts.append((key.previous_digest, until_us if key.expires_us is None else min(until_us, key.expires_us)))
    return texts
