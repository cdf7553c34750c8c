"""Which queues a lease of dispatch is about. The table is dispatch's; here it is only looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.access.tables import SQL
from forebay.broker.room_work import Ask, Work

_ranges = msgspec.json.Decoder(list[list[Any]])
"""A range is a list: its queue, and then what only dispatch needs to know of it."""


def queues_of_lease(lease_id: str) -> Work[set[str] | None]:
    """None where nothing is, or was, under the lease."""
    rows = yield Ask(SQL["parcel_lease_ranges"], {"lease": lease_id})
    return {reading[0] for (text,) in rows for reading in _ranges.decode(text)} if rows else None
