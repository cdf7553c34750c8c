"""Ids of parcels: UUIDs of version 7, so that the ids of parcels that are cut together lie together in an index."""

from __future__ import annotations

import secrets

_RANDOM_BITS = 74


def new_dids(count: int, now_us: int) -> list[str]:
    """So many at once, in ascending order: the first is drawn, those behind it are counted up from it."""
    # One bit fewer than there is room for, so that counting up cannot overflow.
    first = secrets.randbits(_RANDOM_BITS - 1)
    milliseconds = max(now_us // 1000, 0) & ((1 << 48) - 1)
    return [_did(milliseconds, first + number) for number in range(count)]


def _did(milliseconds: int, random: int) -> str:
    high, low = random >> 62, random & ((1 << 62) - 1)
    digits = f"{milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
