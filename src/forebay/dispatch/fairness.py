"""Turns: how a limited number of parcels is divided between classes and flows, and which of them is next. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Generic, TypeVar

K = TypeVar("K", str, tuple[str, str])
T = TypeVar("T")
_ABSENT = object()
REMEMBERED_MAX = 10_000
"""How many names are remembered: beyond that all turns begin anew."""


class Turns(Generic[K]):
    """Whose turn it is: the name that was served longest ago. One that never was comes first."""

    def __init__(self) -> None:
        self._served: dict[K, int] = {}
        self._count = 0

    def in_order(self, names: Iterable[K]) -> list[K]:
        """These names, the one whose turn it is first."""
        return sorted(names, key=lambda name: (self._served.get(name, 0), name))

    def serve(self, name: K) -> None:
        """It had its turn."""
        if len(self._served) >= REMEMBERED_MAX:
            self._served.clear()
        self._count += 1
        self._served[name] = self._count


def shares(sizes: Mapping[K, int], total: int, *, first: int = 0) -> dict[K, int]:
    """Divide `total` between what waits: equally, except that none gets more than it has.

    Where it does not come out even, one more each goes to those from number `first` on: the caller counts up, so that
    each has its turn.
    """
    names = [name for name, size in sizes.items() if size > 0]
    names = names[first % len(names) :] + names[: first % len(names)] if names else []
    given: dict[K, int] = dict.fromkeys(names, 0)
    left = min(total, sum(sizes[name] for name in names))
    while left > 0:
        hungry = [name for name in names if given[name] < sizes[name]]
        each = left // len(hungry)
        # The last few, one each, only when no more can be divided evenly.
        for name in hungry if each else hungry[:left]:
            more = min(each or 1, sizes[name] - given[name])
            given[name] += more
            left -= more
    return {name: amount for name, amount in given.items() if amount}


def in_turn(queues: Iterable[Sequence[T]]) -> list[T]:
    """The first of each, then the second of each, and so on; within a queue the order stays."""
    rounds = zip_longest(*queues, fillvalue=_ABSENT)
    return [item for item in chain.from_iterable(rounds) if item is not _ABSENT]  # type: ignore[misc]
