"""Workers that wait for parcels, and which of them are woken when some arrive.

A wake-up is a hint to look. A lost one costs a second, after which every worker looks by itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase


def serves(patterns: Sequence[str], action_class: str) -> bool:
    """Whether a worker that asks with these patterns (`geo.*`) does actions of the class."""
    return any(fnmatchcase(action_class, pattern) for pattern in patterns)


class Waiters:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Event, Sequence[str]] = OrderedDict()

    @contextmanager
    def waiting(self, patterns: Sequence[str]) -> Iterator[asyncio.Event]:
        """Be woken from now on. Enter before looking: what arrives while one looks is not missed."""
        event = asyncio.Event()
        self._waiting[event] = patterns
        try:
            yield event
        finally:
            self._waiting.pop(event, None)

    def wake(self, classes: Iterable[str]) -> None:
        """One parcel each of these classes: as many workers are woken, those that waited longest first."""
        for action_class in classes:
            for event, patterns in self._waiting.items():
                if not event.is_set() and serves(patterns, action_class):
                    event.set()
                    break

    def wake_all(self) -> None:
        for event in self._waiting:
            event.set()
