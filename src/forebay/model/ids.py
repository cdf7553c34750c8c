"""Ids for messages whose producer gave none."""

from __future__ import annotations

import os
import secrets
import threading

_PAIRS = [f"{number:02x}" for number in range(256)]
_prefix = ""
_next_number = 1
_lock = threading.Lock()


def random_prefix() -> str:
    """All of a UUID of version 8 but its last group, which whoever asks may count in."""
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


def minted_ids(number: int) -> list[str]:
    """Several at once."""
    global _next_number
    with _lock:
        first = _next_number
        _next_number += number
    return numbered(_prefix, first, number)


def numbered(prefix: str, first: int, count: int) -> list[str]:
    """The prefix with each of so many numbers behind it, in twelve or more hexadecimal digits."""
    # By the last two digits, which are there already: every message gets such ids, and a format takes four times as
    # long.
    ids: list[str] = []
    end = first + count
    while first < end:
        high, low = divmod(first, len(_PAIRS))
        start = f"{prefix}{high:010x}"
        pairs = _PAIRS[low : low + end - first]
        ids += [start + pair for pair in pairs]
        first += len(pairs)
    return ids
