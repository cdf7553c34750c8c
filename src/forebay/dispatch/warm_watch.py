"""The warm tier is compared with the database, and rebuilt where it has lost entries.

The two are read one after the other while parcels move, so numbers that differ once say nothing. A class is rebuilt
when its numbers differ twice in a row in the same direction; if they still do after that, because entries are always
on their way between the two, it is rebuilt less often. A tier that was away, or that has lost its marker, is rebuilt
at once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple

from forebay.broker.room_work import Ask, Work
from forebay.broker.store import Store
from forebay.dispatch.tables import SQL
from forebay.dispatch.warm import WarmEntry, WarmTier, WarmUnavailable

logger = logging.getLogger(__name__)
PAGE_PARCELS = 1_000
LOOKS_MIN, LOOKS_MAX = 2, 4
"""How often in a row numbers have to differ: at first, and after rebuilding changed nothing."""


class _Difference(NamedTuple):
    sign: int
    """1: entries are missing. -1: there are too many."""
    looks: int
    needed: int


class WarmWatch:
    def __init__(self, store: Store, warm: WarmTier) -> None:
        self._store = store
        self._warm = warm
        self._differences: dict[str, _Difference] = {}
        self._is_away = False
        self.rebuilds = 0
        """How many classes were rebuilt since the server started."""

    async def turn(self) -> list[str]:
        """Compare, and rebuild what is wrong; the names of the classes that were rebuilt."""
        try:
            marker, sizes = await self._warm.marker(), await self._warm.sizes()
            known = await self._store.look(_warm_sizes)
            wrong = sorted(known) if self._is_away or not marker else self._differing(dict(sizes), known)
            for action_class in wrong:
                await self._warm.rebuild(action_class, self._pages(action_class))
        except WarmUnavailable as error:
            if not self._is_away:
                logger.warning("%s", error, extra={"action": "warm_away"})
            self._is_away = True
            return []
        if wrong:
            self.rebuilds += len(wrong)
            logger.info("warm tier rebuilt: %s", ", ".join(wrong), extra={"action": "warm_rebuilt"})
        self._is_away = False
        return wrong

    def _differing(self, sizes: dict[str, int], known: dict[str, int]) -> list[str]:
        before, self._differences = self._differences, {}
        wrong = []
        for action_class in sorted(sizes.keys() | known.keys()):
            missing = known.get(action_class, 0) - sizes.get(action_class, 0)
            if missing == 0:
                continue
            sign = 1 if missing > 0 else -1
            was = before.get(action_class)
            if was is None or was.sign != sign:
                self._differences[action_class] = _Difference(sign, 1, LOOKS_MIN)
            elif was.looks + 1 < was.needed:
                self._differences[action_class] = was._replace(looks=was.looks + 1)
            else:
                wrong.append(action_class)
                self._differences[action_class] = _Difference(sign, 0, LOOKS_MAX)
        return wrong

    async def _pages(self, action_class: str) -> AsyncIterator[Sequence[WarmEntry]]:
        after = WarmEntry(action_class, "", -1, "", -1)
        while True:
            page = await self._store.look(partial(_warm_page, after))
            if page:
                yield page
            if len(page) < PAGE_PARCELS:
                return
            after = page[-1]


def _warm_sizes() -> Work[dict[str, int]]:
    rows = yield Ask(SQL["warm_sizes"])
    return dict(rows)


def _warm_page(after: WarmEntry) -> Work[list[WarmEntry]]:
    """Parcels of a class that wait warm, behind one of them in the order of flow and place."""
    rows = yield Ask(SQL["warm_page"], {**after._asdict(), "parcels_max": PAGE_PARCELS})
    return [WarmEntry(after.action_class, *row) for row in rows]
