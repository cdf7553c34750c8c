"""The settings of the way out: send queues, exporters and receivers, with the names of the seeds.

Destinations and exports are lists, and are read from the file by `forebay.config.lists`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator

from forebay.config.section import Section
from forebay.config.units import parse_size
from forebay.config.values import Duration, Size


class BackoffSettings(Section):
    """How long a batch waits before it is sent again."""

    enabled: bool = Field(default=True, description="Wait longer after each failure; if not, always `retry_interval`.")
    multiplier: float = Field(default=2.0, ge=1.0, le=100.0, description="By what each wait is longer than the last.")


class CircuitBreakerSettings(Section):
    """When a destination is left alone for a while."""

    enabled: bool = Field(default=True, description="Leave a destination alone that fails again and again.")
    threshold: int = Field(default=5, ge=1, le=10_000, description="After so many failures in a row.")
    reset_timeout: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(milliseconds=10),
        le=timedelta(hours=24),
        description="For so long since the last failure; then one batch is sent to try.",
    )


class PipelineSplitSettings(Section):
    """Preparing (converting, compressing) apart from sending. A destination that needs order (`remote_write`, `queue`,
    `file`) has one preparer, and one sender with one send under way, whatever the counts say."""

    enabled: bool = Field(default=False, description="Prepare batches in threads while others are being sent.")
    preparer_count: int = Field(default=0, ge=0, le=1024, description="Preparers; 0 for one per processor.")
    sender_count: int = Field(default=0, ge=0, le=1024, description="Senders; 0 for two per processor.")
    channel_size: int = Field(default=256, ge=1, le=65_536, description="How many prepared batches may wait.")


class AdaptiveWorkersSettings(Section):
    """As many workers as there is work; with pipeline split, as many senders. A destination that needs order
    (`remote_write`, `queue`, `file`) always has one."""

    enabled: bool = Field(default=False, description="Add workers while batches pile up, and take them away again.")
    min_workers: int = Field(default=1, ge=1, le=1024, description="Never fewer.")
    max_workers: int = Field(default=0, ge=0, le=1024, description="Never more; 0 for four per processor.")


class SendQueueSettings(Section):
    """The send queue of each destination. A destination may override any of these keys with its own `queue`."""

    enabled: bool = Field(default=True, description="If not, batches are sent at once and refused if that fails.")
    mode: Literal["memory", "disk", "hybrid"] = Field(
        default="memory",
        description="Where batches wait: see the guide. `type` is another name of this key.",
    )
    path: str = Field(
        default="",
        description="The directory of send queues, each in one named like its destination; `export` in `data_dir` "
        "if empty.",
    )
    max_size: int = Field(default=10_000, ge=1, le=100_000_000, description="How many batches may wait.")
    max_bytes: Size = Field(
        default=parse_size("256Mi"),
        ge=parse_size("4Ki"),
        le=parse_size("1024Ti"),
        description="How many bytes may wait. In mode `hybrid` this holds for memory and disk each.",
    )
    full_behavior: Literal["drop_oldest", "drop_newest", "block"] = Field(
        default="drop_oldest", description="What happens to a batch that finds the queue full."
    )
    block_timeout: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="How long `block` waits for room.",
    )
    hybrid_spillover_pct: int = Field(
        default=80, ge=1, le=100, description="From how full memory has to be for batches to go to disk, in per cent."
    )
    order: Literal["tiers", "fifo"] = Field(
        default="tiers",
        description="Of mode `hybrid`: `tiers` sends what is in memory before what is on disk; `fifo` keeps the order "
        "of acceptance. For a destination that needs order (`remote_write`, `queue`, `file`) it is always `fifo`.",
    )
    inmemory_blocks: int = Field(
        default=2048, ge=1, le=1_000_000, description="How many batches FastQueue holds in memory before it spills."
    )
    chunk_size: Size = Field(
        default=parse_size("512Mi"),
        ge=parse_size("4Ki"),
        le=parse_size("64Gi"),
        description="A new chunk file is begun at this size.",
    )
    meta_sync_interval: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(milliseconds=1),
        le=timedelta(hours=1),
        description="How often batches and meta file are made durable: what a crash may cost in mode `disk`.",
    )
    stale_flush_interval: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(milliseconds=1),
        le=timedelta(hours=1),
        description="At the latest after so long batches in memory are written, whatever `meta_sync_interval` says.",
    )
    write_buffer_size: Size = Field(
        default=parse_size("256Ki"),
        ge=1024,
        le=parse_size("64Mi"),
        description="How much is written to a chunk at once.",
    )
    compression: Literal["snappy", "none"] = Field(default="snappy", description="Of batches on disk.")
    always_queue: bool = Field(
        default=True,
        description="Every batch goes through the queue. If not, it is sent at once, and queued if that fails.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="How many batches are sent at a time; 0 for two per CPU. A destination that needs order "
        "(`remote_write`, `queue`, `file`) is sent one at a time, whatever this says.",
    )
    retry_interval: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(milliseconds=1),
        le=timedelta(hours=1),
        description="How long a batch waits after its first failure.",
    )
    max_retry_delay: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(milliseconds=1),
        le=timedelta(hours=24),
        description="The longest wait between two attempts.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        le=10_000,
        description="How often a batch is sent that the destination refuses for good, before it is a dead letter.",
    )
    max_elapsed: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="A batch that was not taken for so long is a dead letter; 0: it is tried for ever.",
    )
    drain_timeout: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="How long a stopping server goes on sending. What is left is kept on disk.",
    )
    max_concurrent_sends: int = Field(
        default=4, ge=1, le=1024, description="With pipeline split: how many sends each sender has under way."
    )
    memory_percent: float = Field(
        default=0.0,
        ge=0.0,
        le=0.9,
        description="`max_bytes` as a share of the memory that the process may use (0.1 is a tenth), where `max_bytes` "
        "itself is not set; 0: as it is set. Not in mode `disk`, whose bytes are not in memory.",
    )
    adaptive_enabled: bool = Field(
        default=False,
        description="Lower `max_bytes` of what waits in memory while the process uses more than `target_utilization` "
        "of its memory. What is on disk is left alone: in mode `disk` this does nothing.",
    )
    target_utilization: float = Field(default=0.85, ge=0.1, le=1.0, description="See `adaptive_enabled`.")
    failover_max_size: int = Field(
        default=1000, ge=1, le=1_000_000, description="Batches in the failover queue, when the disk refuses."
    )
    failover_max_bytes: Size = Field(
        default=parse_size("256Mi"), ge=parse_size("4Ki"), le=parse_size("1Ti"), description="Bytes in it."
    )
    backoff: BackoffSettings = BackoffSettings()
    circuit_breaker: CircuitBreakerSettings = CircuitBreakerSettings()
    pipeline_split: PipelineSplitSettings = PipelineSplitSettings()
    adaptive_workers: AdaptiveWorkersSettings = AdaptiveWorkersSettings()

    _is_max_bytes_written: bool = PrivateAttr(default=False)
    """Whether a person wrote `max_bytes`, and not a default or a profile."""

    def model_post_init(self, _context: Any) -> None:
        self._is_max_bytes_written = "max_bytes" in self.model_fields_set

    def with_max_bytes_written(self, is_written: bool) -> SendQueueSettings:
        """The same settings, where it is known better where `max_bytes` was written."""
        found = self.model_copy()
        found._is_max_bytes_written = is_written  # noqa: SLF001 - of a copy of this
        return found

    @property
    def is_max_bytes_written(self) -> bool:
        return self._is_max_bytes_written

    @property
    def is_share_of_memory(self) -> bool:
        """Whether `memory_percent` is in force. Bytes on disk are no share of memory, and what is written out holds."""
        return self.memory_percent > 0 and self.mode != "disk" and not self._is_max_bytes_written


class ExporterSettings(Section):
    """What all destinations share. The destinations themselves are the list `destinations` of the file."""

    global_send_limit: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="How many sends to one destination may be under way, by all its workers and exports together; "
        "0 for eight per CPU.",
    )
    memory_limit_ratio: float = Field(
        default=0.85,
        ge=0.1,
        le=1.0,
        description="Of the memory that the process may use, how much all send queues together may be promised.",
    )
    queue: SendQueueSettings = SendQueueSettings()


class ReceiverSettings(Section):
    """One way in for telemetry. Off while `listen` is empty."""

    listen: str = Field(default="", description="`host:port` to listen on, such as `127.0.0.1:4318`; empty for off.")
    to: str = Field(
        default="",
        description="Where it goes: `queue:NAME` (durable, with a receipt; `{signal}` in the name stands for "
        "`metrics`, `traces` or `logs`), or `destination:NAME`.",
    )


class MetricsBufferSettings(Section):
    """Requests on their way to a destination are joined here to larger batches."""

    flush_interval: Duration = Field(
        default=timedelta(milliseconds=200),
        ge=timedelta(0),
        le=timedelta(minutes=5),
        description="How long a request waits for others; 0: every request is a batch of its own.",
    )
    batch_items: int = Field(default=8192, ge=1, le=1_000_000, description="A batch is full with so many items.")
    batch_bytes: Size = Field(
        default=parse_size("4Mi"), ge=1024, le=parse_size("64Mi"), description="A batch is full with so many bytes."
    )


class ReceiversSettings(Section):
    """Telemetry in: OTLP over HTTP and gRPC, Prometheus remote write."""

    body_size: Size = Field(
        default=parse_size("16Mi"),
        ge=1024,
        le=parse_size("1Gi"),
        description="The largest request, also once it is decompressed.",
    )
    in_flight_size: Size = Field(
        default=parse_size("256Mi"),
        ge=1024,
        le=parse_size("1Ti"),
        description="What all requests together may hold in memory until they are answered; beyond it they get 429. "
        "At least one of `body_size` always fits, with its decompressed form.",
    )
    otlp_http: ReceiverSettings = ReceiverSettings()
    otlp_grpc: ReceiverSettings = ReceiverSettings()
    remote_write: ReceiverSettings = ReceiverSettings()
    buffer: MetricsBufferSettings = MetricsBufferSettings()


class TraceSettings(Section):
    """Spans of OpenTelemetry. A `traceparent` is passed on whether they are exported or not."""

    endpoint: str = Field(
        default="",
        description="Where spans go by OTLP over HTTP, such as `http://localhost:4318/v1/traces`. Empty: nowhere.",
    )
    sample_ratio: float = Field(
        default=0.01,
        ge=0.0,
        le=1.0,
        description="Of traces that begin here. One that began elsewhere is followed if it is sampled there.",
    )
    service_name: str = Field(default="forebay", min_length=1, description="What the spans say they are of.")
    buffer_spans: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Spans that may wait for the endpoint; more are dropped."
    )

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("has to begin with http:// or https://")
        return value


class TelemetrySettings(Section):
    """How Forebay speaks of itself."""

    namespace: Literal["forebay", "metrics_governor"] = Field(
        default="forebay",
        description="What names of metrics of the way out begin with; `metrics_governor` for dashboards made for that.",
    )
    queue_series_max: int = Field(
        default=60_000,
        ge=0,
        le=10_000_000,
        description="How many series `/metrics` has of queues and groups: 7 of a queue, 5 of each group. Queues beyond "
        "that are summed in series whose queue is `other`.",
    )
    traces: TraceSettings = TraceSettings()
