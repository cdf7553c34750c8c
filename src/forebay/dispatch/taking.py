"""Which waiting parcels a lease tries first: entries leave the warm tier, the classes in turn, then their flows.

| a lease of | its entries | whose turn it is |
|---|---|---|
| anything that waits | an equal share of each class, and of each flow within it | the odd ones go round |
| one step (`same_step`) | of one flow and step of one class, as many as wait | served longest ago: class, then flow |

A share of one step would be too small to be worth a job. So a class that was served stands back until the others were.
Turns are remembered by each server for itself, and forgotten when it stops: they are about fairness, not about order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from forebay.dispatch.fairness import Turns, in_turn, shares
from forebay.dispatch.ledger.leases import WaitingFlow
from forebay.dispatch.values import LeaseRequest
from forebay.dispatch.waiters import serves
from forebay.dispatch.warm import WarmEntry, WarmTier


class Taking:
    """One per server."""

    def __init__(self, warm: WarmTier) -> None:
        self._warm = warm
        self._classes: Turns[str] = Turns()
        self._flows: Turns[tuple[str, str]] = Turns()

    async def take(self, request: LeaseRequest, parcels_max: int, held: Collection[str], turn: int) -> list[WarmEntry]:
        """Take entries that the request may have out of the warm tier; `held` names flows that are passed over."""
        sizes = await self._warm.sizes()
        waiting = {name: size for name, size in sorted(sizes.items()) if serves(request.classes, name)}
        if request.same_step:
            return await self._take_step(waiting, parcels_max, held)
        taken: dict[str, list[WarmEntry]] = {}
        left = parcels_max
        # Entries of held flows are counted and not given: what a class leaves over is another's.
        while wanted := shares(waiting, left, first=turn):
            for name, share in wanted.items():
                entries = await self._warm.take(name, share, without=held)
                taken.setdefault(name, []).extend(entries)
                waiting[name] = waiting[name] - share if len(entries) == share else 0
                left -= len(entries)
        return in_turn(taken.values())

    async def _take_step(self, classes: Iterable[str], parcels_max: int, held: Collection[str]) -> list[WarmEntry]:
        for name in self._classes.in_order(classes):
            entries = await self._warm.take(name, parcels_max, without=held, same_step=True)
            if entries:
                return entries
        return []

    def of_one_step(self, waiting: Iterable[WaitingFlow]) -> list[tuple[str, str]]:
        """Class and flow of what waits in the database, in the order in which a lease of one step tries them."""
        flows = [(each.action_class, each.flow) for each in waiting if each.queued]
        classes = self._classes.in_order({name for name, _ in flows})
        ranks = {name: rank for rank, name in enumerate(classes)}
        return sorted(self._flows.in_order(flows), key=lambda key: ranks[key[0]])

    def served(self, action_class: str, flow: str) -> None:
        """A lease of one step of this flow was given."""
        self._classes.serve(action_class)
        self._flows.serve((action_class, flow))
