"""What a look at the journey holds: values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.api.queue_figures import QueueNow
from forebay.dispatch.health import HealthWarning
from forebay.dispatch.views import ClassFigures
from forebay.flows.flow_report import FlowReport

STAGES = ("ingest", "queues", "dispatch", "spark", "export")


@dataclass(frozen=True, slots=True)
class StageFigures:
    """One stage at one moment. `taken` and `given` are totals in messages; None where there is no such figure.

    What ingest gives is what it does not keep in buffer files, so it falls when a file fills up after a restart.
    """

    taken: int | None = None
    given: int | None = None
    waiting: int = 0
    oldest_seconds: float = 0.0
    at_risk: int = 0


@dataclass(frozen=True, slots=True)
class ExportNow:
    """One way out."""

    name: str
    kind: str
    """`destination` or `export`."""
    waiting: int
    oldest_seconds: float
    breaker: str
    is_paused: bool
    dead: int
    """Dead letters that are kept now."""
    dropped: int
    last_error: str
    taken_items: int
    sent_items: int
    at_risk: int
    retry_seconds: float = 0.0
    """Until the breaker lets a probe through."""
    backoff_seconds: float = 0.0
    """The last pause between two attempts; 0 after a success."""


@dataclass(frozen=True, slots=True)
class BuffersNow:
    pending: int = 0
    failed: int = 0
    damaged_files: int = 0
    oldest_seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DiskNow:
    """How much of a disk is free, of those on which little is left."""

    name: str
    free_share: float


@dataclass(frozen=True, slots=True)
class StoreLook:
    """What only the store can tell."""

    queues: Sequence[QueueNow] = ()
    """Internal ones too."""
    classes: Sequence[ClassFigures] = ()
    warm: int = 0
    cold: int = 0
    joining: int = 0
    leased: int = 0
    exporting: int = 0
    errors: int = 0
    warnings: Sequence[HealthWarning] = ()
    cut: int = 0
    """Messages that all flows together have cut into parcels."""
    paused_flows: Sequence[str] = ()
    stopped_flows: Sequence[tuple[str, str]] = ()
    """Flow and reason, of sources that are stopped."""
    longest_run_seconds: float = 0.0
    reports: Sequence[FlowReport] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """All stages at one moment."""

    at_us: int
    taken_here: int
    store: StoreLook
    is_store_there: bool = True
    buffers: BuffersNow = BuffersNow()
    exports: Sequence[ExportNow] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    is_push_paused: bool = False
    is_pop_paused: bool = False
    disks: Sequence[DiskNow] = ()
