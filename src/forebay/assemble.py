"""The wiring: from settings to the objects that obey them, in the order of a message's journey.

Only this module and the command line know both the settings and the rooms; a room is handed what it needs.
"""

from __future__ import annotations

from forebay.commitlog import LogOptions
from forebay.config.model import LogSettings


def log_options(settings: LogSettings) -> LogOptions:
    """How commit logs are kept."""
    return LogOptions(
        segment_bytes=settings.segment_size,
        roll_daily=settings.roll_daily,
        record_bytes=settings.record_size,
        read_chunk_bytes=settings.read_chunk,
        compress=settings.compression == "auto",
    )
