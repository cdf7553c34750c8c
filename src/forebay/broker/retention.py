"""What retention spares because an unfinished parcel still needs it, and how that is reported."""

from __future__ import annotations

import logging
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Spared(NamedTuple):
    """Messages that are too old to be kept, and kept for a parcel."""

    queue: str
    first_seq: int
    """The first that a parcel needs."""
    last_seq: int
    """The last that would have been removed."""


def removable_seq(due_seq: int, held_seq: int | None) -> int:
    """Up to where messages may go of those up to `due_seq`: not those from `held_seq` on."""
    return due_seq if held_seq is None else min(due_seq, held_seq - 1)


def tell_spared(spared: Spared) -> None:
    """At every turn of retention for as long as it is so: the disk fills meanwhile."""
    logger.warning(
        "retention of %s spares up to %d messages from seq %d on: unfinished parcels need them (forebay parcels list)",
        spared.queue,
        spared.last_seq - spared.first_seq + 1,
        spared.first_seq,
        extra={"action": "retention_spares_parcels"},
    )
