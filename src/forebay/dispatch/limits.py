"""How much may wait warm, how long a lease lasts, and how often dispatch looks."""

from __future__ import annotations

from typing import NamedTuple

DAY_SECONDS = 86_400.0


class DispatchLimits(NamedTuple):
    in_memory_queue_size: int = 5_000
    """How many parcels of one action class may wait warm. More wait cold."""
    lease_seconds: float = 60.0
    """How long a worker may keep parcels without a heartbeat, where the step does not say."""
    heartbeat_seconds: float = 10.0
    """How often a worker is to prolong its lease."""
    stale_seconds: float = 30.0
    """A running task whose worker was silent for so long is no longer shown as running; its lease lasts longer."""
    worker_seconds: float = 60.0
    """A worker with a request within this time serves its classes."""
    lease_parcels_max: int = 1_000
    """How many parcels one lease may hold."""
    wait_seconds_max: float = 60.0
    """How long a request for a lease may wait."""
    cold_to_warm_seconds: float = 5.0
    sizes_seconds: float = 2.0
    """How often the warm tier's sizes are compared with the database's."""
    metrics_seconds: float = 5.0
    """How long detailed metrics are answered from memory."""
    expiry_seconds: float = 1.0
    """How often leases that ended and errors that are due are looked for."""
    cut_seconds: float = 0.05
    """How often sources are looked at while messages arrive."""
    cut_idle_seconds: float = 0.2
    """How often they are while none do."""
    join_seconds: float = 1.0
    error_source_seconds: float = 2.0
    export_seconds: float = 0.5
    """How often it is looked whether what EXPORTING parcels wait for has been passed."""
    export_idle_seconds: float = 5.0
    """How often it is while this server knows of none."""
    piece_parcels: int = 1_000
    """How many parcels one transaction of the periodic work moves at the most."""
    finished_retention_seconds: float = 13 * DAY_SECONDS
    """How long a finished parcel and its history are kept."""
    ageing_seconds: float = 10.0
    """How often finished parcels that are old enough are removed, and holds on messages are moved on."""
    parcels_page_max: int = 1_000
    """How many parcels one listing may hold."""
    resume_parcels_max: int = 10_000
    """How many parcels one resume or cancel may concern; it says how many it did."""
    annotations_max: int = 100
    """Of one parcel."""
    annotation_chars_max: int = 1_000
    error_chars_max: int = 10_000
    """An error's text is cut to this."""
    steps_max: int = 100
    """Of one flow."""
    flows_max: int = 10_000
    policies_max: int = 1_000
