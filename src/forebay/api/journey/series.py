"""One figure over the last hour: a ring of numbers, eight bytes each."""

from __future__ import annotations

from array import array


class Series:
    """The newest `capacity` values. A figure that comes later, or is missing now and then, has NaN there."""

    __slots__ = ("_count", "_values")

    def __init__(self, capacity: int, missed: int = 0) -> None:
        """`missed`: how many samples there were before this figure."""
        self._values = array("d", [float("nan")] * capacity)
        self._count = missed

    def add(self, value: float) -> None:
        self._values[self._count % len(self._values)] = value
        self._count += 1

    def values(self) -> list[float | None]:
        """Oldest first; None where there was no figure."""
        start = max(self._count - len(self._values), 0)
        size = len(self._values)
        found = (self._values[number % size] for number in range(start, self._count))
        return [None if value != value else value for value in found]
