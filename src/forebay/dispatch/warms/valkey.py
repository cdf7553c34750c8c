"""The warm tier in Valkey, shared by all servers on one database.

| key | what |
|---|---|
| `forebay:classes` | set: the action classes that have entries, so that nothing is ever looked for with KEYS |
| `forebay:flows:CLASS` | sorted set: the flows that have entries, by their last turn |
| `forebay:queue:N:CLASS:FLOW` | sorted set: the entries, by place. N: the length of CLASS, so that two never meet |
| `forebay:marker` | what the first rebuild left behind; gone when the server was emptied |
| `forebay:probe` | written to see whether the server takes writes; gone after ten seconds |

An entry is `PLACE:STEP:DID`, the place with leading zeros. A score is a double, exact up to 2^53 only: entries whose
scores are the same double are ordered by their text, which is the order of their places.

Every step is one Lua script, so that it is done as a whole or not at all. Scripts are called by their hash, and sent
when the server does not know it: after a restart nothing has to be loaded first.

**Trouble.** A call has `timeout_seconds`. Whatever goes wrong (no connection, no answer, no memory left, a server that
only reads) is raised as `WarmUnavailable` with its cause, and from then on every call is refused at once, without
waiting, until a write has succeeded, which is tried in the background. A frozen server may still do what it was sent
once it goes on; an entry that was taken that way is missed in the sizes, and found again.

Not supported: Valkey in cluster mode (a class's keys may be on several servers).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from valkey.asyncio import BlockingConnectionPool, Valkey
from valkey.exceptions import NoScriptError, ValkeyError

from forebay.dispatch.warm import STEP_LOOKS, WarmEntry, WarmUnavailable

PREFIX = "forebay:"
TIMEOUT_SECONDS = 0.5
CONNECTIONS_MAX = 16
ENTRIES_PER_CALL = 2_000
"""Valkey does nothing else while a script runs: this many take about a millisecond."""
PLACE_DIGITS = 19
_PROBE_MS = 10_000
_PROBE_SECONDS_MIN = 0.05
_PROBE_SECONDS_MAX = 1.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class ValkeyWarm:
    """See `forebay.dispatch.warm.WarmTier`. Connects when it is first used; needs a running event loop from then on."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=timeout_seconds,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
        )
        self._client = Valkey(connection_pool=self._pool)
        self._where = _without_password(url)
        self._cause = ""
        """Why the server is away; empty: it is not."""
        self._returning: asyncio.Task[None] | None = None

    async def add(self, entries: Sequence[WarmEntry]) -> None:
        for piece in _pieces(entries):
            arguments = _grouped(piece, lambda entry: (entry.place, _member(entry)))
            await self._run(_script("add"), arguments)

    async def take(
        self, action_class: str, parcels_max: int, *, without: Collection[str] = (), same_step: bool = False
    ) -> list[WarmEntry]:
        if same_step:
            answer = await self._run(_script("take_step"), [action_class, parcels_max, STEP_LOOKS, *without])
        else:
            answer = await self._run(_script("take"), [action_class, parcels_max, *without])
        return [_entry(action_class, flow, member) for flow, member in zip(answer[::2], answer[1::2], strict=True)]

    async def remove(self, entries: Sequence[WarmEntry]) -> None:
        for piece in _pieces(entries):
            await self._run(_script("remove"), _grouped(piece, lambda entry: (_member(entry),)))

    async def sizes(self) -> Mapping[str, int]:
        answer = await self._run(_script("sizes"), [])
        return {name.decode(): count for name, count in zip(answer[::2], answer[1::2], strict=True)}

    async def marker(self) -> str:
        value = await self._bounded(lambda: self._client.get(f"{PREFIX}marker"))
        return value.decode() if value else ""

    async def rebuild(self, action_class: str, pages: AsyncIterable[Sequence[WarmEntry]]) -> None:
        await self._run(_script("forget"), [action_class])
        async for entries in pages:
            await self.add(entries)
        await self._bounded(lambda: self._client.set(f"{PREFIX}marker", uuid.uuid4().hex, nx=True))

    async def close(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.gather(self._returning, return_exceptions=True)
        await self._client.aclose()
        await self._pool.disconnect(inuse_connections=True)

    async def _run(self, script: _Script, arguments: Sequence[int | str]) -> Any:
        execute: Callable[..., Awaitable[Any]] = self._client.execute_command

        async def evaluate() -> Any:
            try:
                return await execute("EVALSHA", script.sha, 0, PREFIX, *arguments)
            except NoScriptError:
                return await execute("EVAL", script.text, 0, PREFIX, *arguments)

        return await self._bounded(evaluate)

    async def _bounded(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._cause:
            raise WarmUnavailable(self._where, self._cause)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await call()
        except (ValkeyError, OSError) as error:  # TimeoutError is an OSError
            cause = _described(error, self._timeout_seconds)
            self._go_away(cause)
            raise WarmUnavailable(self._where, cause) from error

    def _go_away(self, cause: str) -> None:
        if not self._cause:  # the first cause tells most
            log.warning(
                "the warm tier at %s is away: %s; leases ask the database",
                self._where,
                cause,
                extra={"action": "warm_away"},
            )
            self._cause = cause
            self._returning = asyncio.create_task(self._return())

    async def _return(self) -> None:
        """Try until the server takes writes again."""
        pause = _PROBE_SECONDS_MIN
        while True:
            # Connections that did not answer are of no use: a late answer would be taken for another call's.
            await self._pool.disconnect(inuse_connections=True)
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await self._client.set(f"{PREFIX}probe", "1", px=_PROBE_MS)
            except (ValkeyError, OSError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PROBE_SECONDS_MAX)
                continue
            log.info("the warm tier at %s is back", self._where, extra={"action": "warm_back"})
            self._cause = ""
            return


class _Script(NamedTuple):
    text: str
    sha: str


@cache
def _script(name: str) -> _Script:
    text = files("forebay.dispatch.warms").joinpath("lua", f"{name}.lua").read_text()
    return _Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _pieces(entries: Sequence[WarmEntry]) -> Iterable[Sequence[WarmEntry]]:
    return (entries[at : at + ENTRIES_PER_CALL] for at in range(0, len(entries), ENTRIES_PER_CALL))


def _grouped(entries: Iterable[WarmEntry], values: Callable[[WarmEntry], tuple[int | str, ...]]) -> list[int | str]:
    """For each class and flow: their names, how many entries, and the values of each."""
    groups: dict[tuple[str, str], list[WarmEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.action_class, entry.flow), []).append(entry)
    arguments: list[int | str] = []
    for (action_class, flow), group in groups.items():
        arguments += (action_class, flow, len(group))
        for entry in group:
            arguments += values(entry)
    return arguments


def _member(entry: WarmEntry) -> str:
    return f"{entry.place:0{PLACE_DIGITS}d}:{entry.step}:{entry.did}"


def _entry(action_class: str, flow: bytes, member: bytes) -> WarmEntry:
    place, step, did = member.decode().split(":", 2)
    return WarmEntry(action_class, flow.decode(), int(place), did, int(step))


def _described(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {timeout_seconds:g} s"
    return str(error) or type(error).__name__


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or parts.path}{f':{parts.port}' if parts.port else ''}"
