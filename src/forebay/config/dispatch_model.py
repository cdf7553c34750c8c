"""The settings of dispatch: parcels, where they wait for workers, and for how long."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from forebay.config.section import Section
from forebay.config.values import Duration


class DispatchSettings(Section):
    """Dispatch: parcels of messages that wait for workers, warm or cold, per action class."""

    warm: str = Field(
        default="embedded",
        description="Where parcels wait warm: `embedded` (in this process), or the URL of a Valkey server, "
        "`valkey://host:6379/0` (`valkeys://` for TLS), which all servers on one database share.",
    )
    in_memory_queue_size: int = Field(
        default=5_000,
        ge=1,
        le=10_000_000,
        description="How many parcels of one action class may wait warm. What comes while so many wait goes cold.",
    )
    lease_time: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="How long a worker keeps parcels without a heartbeat, where the flow's step does not say.",
    )
    heartbeat_time: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(milliseconds=100),
        le=timedelta(hours=1),
        description="How often workers are to prolong their leases; at most half of `lease_time`.",
    )
    stale_time: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="A task whose worker was silent for so long is not shown as running any more.",
    )
    cold_to_warm_interval: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(milliseconds=10),
        le=timedelta(hours=1),
        description="How often cold parcels become warm where there is room. Also at once when a lease makes room.",
    )
    sizes_interval: Duration = Field(
        default=timedelta(seconds=2),
        ge=timedelta(milliseconds=10),
        le=timedelta(hours=1),
        description="How often the warm tier is compared with the database. One that lost parcels is rebuilt.",
    )
    metrics_time: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(0),
        le=timedelta(minutes=10),
        description="How long detailed metrics of the queues are answered from memory.",
    )
    finished_retention: Duration = Field(
        default=timedelta(days=13),
        ge=timedelta(0),
        le=timedelta(days=3650),
        description="How long finished parcels and their history are kept.",
    )
