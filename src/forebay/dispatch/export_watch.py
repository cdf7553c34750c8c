"""Looks whether groups have passed what EXPORTING parcels wait for, and lets those go on.

| while | how often |
|---|---|
| steps are EXPORTING | every 0.5 s, or ten times as long as a look takes |
| none is, as far as this server knows | every 5 s: another server may have completed some and be gone |
| this server completes a lease with some | at once |

A look is one read of the index for each group and partition that is waited for, however many parcels wait for it. Only
where there is something to confirm is a transaction opened, for a piece of the parcels at a time.
"""

from __future__ import annotations

import asyncio
from functools import partial

from forebay.broker.store import Store
from forebay.clock import Clock
from forebay.dispatch.ledger.exporting import FIRST, Awaited, confirm_exports, exports_ready
from forebay.dispatch.limits import DispatchLimits

SHARE = 10
"""Looks take a tenth of the time at the most, however many groups are waited for."""
UNTAKEN_SECONDS = 60.0
"""An outbox that is there has a group within seconds."""


class ExportWatch:
    """One per server."""

    def __init__(self, store: Store, limits: DispatchLimits, clock: Clock) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self.woken = asyncio.Event()
        """Steps became EXPORTING through this server."""
        self._untaken: dict[tuple[str, str], float] = {}
        """Queues and groups that steps wait for and that are not there, and since when this server has seen that."""

    def untaken(self) -> list[str]:
        """Queues that hold what parcels wait for, and whose group nothing has made for a minute: a destination that no
        server has, most likely."""
        seen_before = self._clock.monotonic() - UNTAKEN_SECONDS
        return sorted(f"{queue}@{group}" for (queue, group), since in self._untaken.items() if since <= seen_before)

    async def turn(self) -> float:
        """Confirm what groups have passed; after how many seconds to look again."""
        self.woken.clear()
        began = self._clock.monotonic()
        awaited: Awaited | None = FIRST
        is_any = is_more = False
        untaken = []
        while awaited is not None:
            awaited, ready, is_group_there = await self._store.look(partial(exports_ready, awaited))
            is_any = is_any or awaited is not None
            if awaited is not None and not is_group_there:
                untaken.append((awaited.queue, awaited.group))
            if ready is not None:
                piece = self._limits.piece_parcels
                confirmed = await self._store.together(partial(confirm_exports, ready.awaited, piece))
                is_more = is_more or confirmed == piece
        self._untaken = {key: self._untaken.get(key, began) for key in untaken}
        if not is_any:
            return self._limits.export_idle_seconds
        if is_more:
            return 0
        return max(self._limits.export_seconds, SHARE * (self._clock.monotonic() - began))
