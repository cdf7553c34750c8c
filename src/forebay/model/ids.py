"""Ids for messages whose producer gave none."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import final, overload

_PAIRS = [f"{number:02x}" for number in range(256)]
_DIGITS = 12
_prefix = ""
_next_number = 1
_lock = threading.Lock()


def random_prefix() -> str:
    """All of a UUID of version 8 but its last group, which the caller may count in."""
    random = secrets.token_hex(9)
    return f"{random[:8]}-{random[8:12]}-8{random[12:15]}-8{random[15:18]}-"


def _begin() -> None:
    """A process of its own, also after a fork: ids that two processes made would be taken for the same message."""
    global _prefix, _lock
    _prefix = random_prefix()
    _lock = threading.Lock()  # another thread of the parent may have held the old one


_begin()
os.register_at_fork(after_in_child=_begin)


def minted_id() -> str:
    """Random for the life of the process, then counted: a UUID of version 8.

    Counting is faster than drawing, and ids that follow each other are cheap for an index to take in.
    """
    global _next_number
    with _lock:
        number = _next_number
        _next_number += 1
    return f"{_prefix}{number:012x}"


_REPLAY = "#replay-"


def replay_id(transaction_id: str) -> str:
    """A new id for a message that is pushed again: its own id is taken, and whose message it is should be seen."""
    return f"{id_before_replay(transaction_id)}{_REPLAY}{secrets.token_hex(8)}"


def id_before_replay(transaction_id: str) -> str:
    """The id that the message had before it was replayed, however often that was."""
    return transaction_id.partition(_REPLAY)[0]


def minted_ids(number: int) -> CountedIds:
    """Several at once."""
    global _next_number
    with _lock:
        first = _next_number
        _next_number += number
    return CountedIds(_prefix, first, number)


@final
class CountedIds(Sequence[str]):
    """A prefix in ASCII with each of so many numbers behind it, in twelve or more hexadecimal digits.

    Every message gets such ids, so they are made from the last two digits, which are there already: a format takes four
    times as long. And where they only become a part of something larger, none of them is made at all.
    """

    __slots__ = ("_count", "_first", "_prefix")

    def __init__(self, prefix: str, first: int, count: int) -> None:
        self._prefix = prefix
        self._first = first
        self._count = count

    @property
    def size(self) -> int:
        """The characters of each, or 0 where not all have the same number of them."""
        return len(self._prefix) + _DIGITS if (self._first + self._count) >> (4 * _DIGITS) == 0 else 0

    def parts(self) -> list[tuple[str, list[str]]]:
        """Neighbours that have all but the last two digits in common: those, and how each of them ends."""
        parts = []
        first, end = self._first, self._first + self._count
        while first < end:
            high, low = divmod(first, len(_PAIRS))
            endings = _PAIRS[low : low + end - first]
            parts.append((f"{self._prefix}{high:010x}", endings))
            first += len(endings)
        return parts

    def joined(self) -> str:
        """All of them, one behind the other."""
        return "".join([start + start.join(endings) for start, endings in self.parts()])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter([start + ending for start, endings in self.parts() for ending in endings])

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return list(self)[place]
        return f"{self._prefix}{self._first + range(self._count)[place]:012x}"
