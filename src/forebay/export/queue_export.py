"""An export: a queue of the broker, and the exporter that drains it into a destination."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.export.exporter import Exporter
from forebay.export.group_feed import GroupFeed


@dataclass(frozen=True, slots=True)
class QueueExport:
    """A queue that is drained into a destination."""

    name: str
    destination: str
    exporter: Exporter
    feed: GroupFeed
