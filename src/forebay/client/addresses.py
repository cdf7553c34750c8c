"""Addresses: which queue, which partition, for which group, in one string."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from forebay.model.queue import DEFAULT_GROUP


class Address(NamedTuple):
    queue: str
    partition: str | None = None
    group: str = DEFAULT_GROUP


@lru_cache(maxsize=1024)
def parse_address(text: str) -> Address:
    """Read `queue[/partition][@group]`. Names with `/` or `@` in them go through `Address` itself."""
    place, at, group = text.partition("@")
    queue, slash, partition = place.partition("/")
    if not queue or (at and not group) or (slash and not partition):
        raise ValueError(f"{text!r} is no address; it is queue, queue/partition, queue@group or queue/partition@group")
    return Address(queue, partition or None, group or DEFAULT_GROUP)


def address_of(given: str | Address) -> Address:
    return given if isinstance(given, Address) else parse_address(given)


def target_of(given: str | Address) -> Address:
    """An address to push to, which has no group: a name with `@` in it was meant for another call."""
    place = address_of(given)
    if place.group != DEFAULT_GROUP:
        raise ValueError(f"{given!r} names a group, and a push is for all groups: leave {'@' + place.group!r} out")
    return place
