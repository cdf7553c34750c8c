"""How much may wait in buffer files, and how long things may take."""

from __future__ import annotations

from typing import NamedTuple

from forebay.ingest.frames import CHUNK_EVENTS


class BufferLimits(NamedTuple):
    flush_seconds: float = 0.1
    """How often buffer files are looked at, and when a QoS 0 push is stored that does not say."""
    batch_events: int = 100
    """How many QoS 0 events make a flush due, when a push does not say."""
    alert_bytes: int = 1 << 30
    alert_events: int = 100_000
    max_bytes: int = 10 << 30
    max_events: int = 10_000_000
    store_seconds: float = 1.5
    """How long a push waits for the store before it goes to the failover file."""
    chunk_events: int = CHUNK_EVENTS
    """How many events of a file the drain stores at once."""
    drain_seconds: float = 20.0
    """How long the drain waits for the store to take one chunk."""
    probe_seconds: float = 0.25
    retry_seconds: float = 1.0
    """How often what the store refused is offered again."""
    wait_events: int = 10_000
    wait_bytes: int = 16 << 20
    """A drain that has no more than this left is waited for: events, or bytes where another process drains."""
    wait_seconds: float = 5.0
    """How long; and for how long none waits after one did in vain."""
    stop_seconds: float = 10.0
    """How long a stop waits for what is still in the files. The rest is for the next start."""
