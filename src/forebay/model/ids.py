"""Ids for messages whose producer gave none."""

from __future__ import annotations

import os
import secrets
from itertools import count, islice

_counter = count(1)
_prefix = ""


def random_prefix() -> str:
    """All of a UUID of version 8 but its last group, which whoever asks may count in."""
    random = secrets.token_hex(9)
    return f"{random[:8]}-{random[8:12]}-8{random[12:15]}-8{random[15:18]}-"


def _begin() -> None:
    """A process of its own, also after a fork: ids that two processes made would be taken for the same message."""
    global _prefix
    _prefix = random_prefix()


_begin()
os.register_at_fork(after_in_child=_begin)


def minted_id() -> str:
    """Random for the life of the process, then counted: a UUID of version 8.

    Counting is faster than drawing, and ids that follow each other are cheap for an index to take in.
    """
    return minted_ids(1)[0]


def minted_ids(number: int) -> list[str]:
    """Several at once."""
    # Through bytes, because a format would take twice as long, and most messages get an id here.
    return [_prefix + counted.to_bytes(6, "big").hex() for counted in islice(_counter, number)]
