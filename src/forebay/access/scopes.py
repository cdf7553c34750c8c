"""Scopes: what a key allows, as bits, so that a request needs one operation to be judged."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Scope(IntEnum):
    """`OPEN` needs no key. `OPERATE` is what `write` of a keys file has always allowed, and is `admin` otherwise:
    to seek, to delete or bury one message, to pause flows, to cancel parcels.
    """

    OPEN = 0
    READ = 1
    WRITE = 2
    CONSUME = 4
    OPERATE = 8
    ADMIN = 16


NAMES = {"read": Scope.READ, "write": Scope.WRITE, "consume": Scope.CONSUME, "admin": Scope.ADMIN}
ALL_BITS = Scope.READ | Scope.WRITE | Scope.CONSUME | Scope.OPERATE | Scope.ADMIN
FILE_BITS = {
    "read": int(Scope.READ),
    "write": Scope.READ | Scope.WRITE | Scope.CONSUME | Scope.OPERATE,
    "consume": int(Scope.CONSUME),
    "admin": ALL_BITS,
}
"""What the words of a keys file mean: its `write` is older than `consume`, and consumes."""


def bits_of(names: Iterable[str]) -> int:
    """The scopes with these names, together. KeyError for a word that is none."""
    bits = 0
    for name in names:
        bits |= ALL_BITS if name == "admin" else NAMES[name]
    return bits


def names_of(bits: int) -> list[str]:
    """What to call them: `admin` alone where it is among them."""
    return ["admin"] if bits & Scope.ADMIN else [name for name, scope in NAMES.items() if bits & scope]
