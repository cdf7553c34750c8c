"""Warm or cold: where a parcel waits for a worker. Pure decisions over the numbers of one action class.

    size + pending >= max        a parcel goes cold, and the class is cold
    the class is cold            every new parcel goes cold, however much room there is
    size <= 80 % and no cold     the class is warm again
    size < 90 %                  the oldest cold parcels become warm, up to max - size

Cold when warm is full; stays cold until warm has fallen to 80 % *and* no cold parcel is left. Both: with the first
alone a newer parcel would overtake an older one that waits cold, with the second alone a class at its capacity would go
cold and warm with every parcel.

The caller holds the class's row locked from reading the numbers to writing what came of them, so they are exact: size
never exceeds max, unless max itself was made smaller.
"""

from __future__ import annotations

from typing import NamedTuple

WARM_AGAIN_PERCENT = 80
REFILL_BELOW_PERCENT = 90


class ClassSizes(NamedTuple):
    """What waits of an action class, and the mode it was left in."""

    warm: int
    cold: int
    is_cold: bool


class Placement(NamedTuple):
    warm: int
    """So many of the arriving parcels wait warm, the oldest of them; the others wait cold."""
    is_cold: bool
    """The class's mode afterwards."""


def is_cold_mode(sizes: ClassSizes, capacity: int) -> bool:
    """Whether a parcel that arrives now has to wait cold."""
    if sizes.cold > 0 or sizes.warm >= capacity:
        return True
    return sizes.is_cold and sizes.warm * 100 > capacity * WARM_AGAIN_PERCENT


def place_arriving(sizes: ClassSizes, arriving: int, capacity: int) -> Placement:
    """Where so many parcels go that arrive together, oldest first."""
    if is_cold_mode(sizes, capacity):
        return Placement(0, True)
    warm = min(arriving, capacity - sizes.warm)
    return Placement(warm, sizes.warm + warm >= capacity)


def refill_amount(sizes: ClassSizes, capacity: int) -> int:
    """How many cold parcels are to become warm, oldest first."""
    if sizes.warm * 100 >= capacity * REFILL_BELOW_PERCENT:
        return 0
    return min(sizes.cold, capacity - sizes.warm)
