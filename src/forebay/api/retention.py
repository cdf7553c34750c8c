"""What a server removes from time to time, because it is too old."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from forebay.access import audit, keys
from forebay.api.clock_watch import WAIT_SECONDS, ClockWatch
from forebay.broker.store import Store
from forebay.clock import Clock

_log = logging.getLogger("forebay.api")


@dataclass(frozen=True, slots=True)
class Ages:
    """How old things may become, in seconds; those that begin with 0 are kept for ever unless set otherwise."""

    stage_seconds: float = 86_400.0
    commit_seconds: float = 30 * 86_400.0
    trace_seconds: float = 30 * 86_400.0
    dead_letter_seconds: float = 0.0
    idle_group_seconds: float = 0.0
    empty_partition_seconds: float = 0.0
    audit_seconds: float = 90 * 86_400.0
    """Also of revoked keys."""


@dataclass(slots=True)
class Retention:
    store: Store
    clock: Clock
    ages: Ages = Ages()
    watch: ClockWatch = field(default_factory=ClockWatch)
    removed: Counter[str] = field(default_factory=Counter)
    """What was removed since the process began, by kind."""

    async def run(self) -> None:
        """Remove what is too old, unless the clock that says so has jumped."""
        jumped = self.watch.look(await self.store.time_us(), self.clock.monotonic())
        if jumped is not None:
            _log.warning(
                "the clock jumped by %d s: nothing is removed for its age in the next %d s, unless it is set back",
                jumped,
                WAIT_SECONDS,
                extra={"action": "retention_clock_jumped"},
            )
        if self.watch.is_in_doubt:
            return
        before = Counter(self.removed)
        ages, store = self.ages, self.store
        self.removed["messages"] += await store.apply_retention()
        self.removed["stages"] += await store.expire_stages(ages.stage_seconds, ages.commit_seconds)
        self.removed["traces"] += await store.expire_traces(ages.trace_seconds)
        await self._expire("dead_letters", store.expire_dead_letters, ages.dead_letter_seconds)
        await self._expire("groups", store.expire_groups, ages.idle_group_seconds)
        await self._expire("partitions", store.expire_partitions, ages.empty_partition_seconds)
        self.removed["admin_actions"] += await store.together(partial(audit.expire, ages.audit_seconds))
        revoked_before_us = await store.time_us() - round(ages.audit_seconds * 1_000_000)
        self.removed["keys"] += await store.together(partial(keys.forget_revoked, revoked_before_us))
        gone = self.removed - before
        if gone:
            summary = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(gone.items()))
            _log.info("removed for their age: %s", summary, extra={"action": "retention_removed"})

    async def _expire(self, kind: str, expire: Callable[[float], Awaitable[int]], seconds: float) -> None:
        if seconds:
            self.removed[kind] += await expire(seconds)
