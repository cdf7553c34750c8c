"""What waits in buffer files: for people, and as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from forebay.api.answers import answered
from forebay.api.exchange import Answer, Request
from forebay.api.problems import without_paths
from forebay.api.routing import Needs, Route, Scope
from forebay.api.service import Service
from forebay.ingest.figures import NO_BUFFERS, BufferFigures


class FailedFile(Struct, rename="camel"):
    name: str
    queue: str
    bytes: int


class Buffers(Struct, rename="camel"):
    """`pending`, `failed` and `dbHealthy` are Queen's."""

    pending: int
    failed: int
    db_healthy: bool
    reason: str | None
    recovering: str | None
    bytes: int
    oldest_seconds: float
    by_kind: dict[str, int]
    queues: dict[str, int]
    """Messages that wait, by queue."""
    partitions_held: int
    """Partitions whose pushes go behind what waits."""
    failed_files: list[FailedFile]
    damaged_files: list[str]
    unknown_files: list[str]
    is_drainer: bool
    """False while another process drains the directory; its messages are then told by that one."""


async def buffer_figures(service: Service) -> BufferFigures:
    return NO_BUFFERS if service.intake is None else await service.intake.figures()


async def show_buffers(service: Service, request: Request) -> Answer:
    figures = await buffer_figures(service)
    recovery = service.intake.keeper.recovery if service.intake else None
    return answered(
        Buffers(
            figures.pending,
            figures.failed,
            service.is_db_healthy,
            without_paths(figures.reason, service.folders) or None,
            str(recovery) if recovery and recovery.is_running else None,
            figures.size_bytes,
            round(figures.oldest_seconds, 3),
            figures.pending_by_lane,
            figures.queues,
            figures.partitions_fenced,
            [FailedFile(*one) for one in figures.failed_files],
            figures.damaged_files,
            figures.strangers,
            figures.is_owner,
        )
    )


async def buffer_lines(service: Service) -> list[str]:
    """Prometheus text."""
    return [] if service.intake is None else list(_lines(await buffer_figures(service)))


def _lines(figures: BufferFigures) -> Iterator[str]:
    yield from _gauge("forebay_db_healthy", "1 while the store takes messages.", int(figures.is_db_healthy))
    yield from _gauge("forebay_buffer_bytes", "Bytes in buffer files.", figures.size_bytes)
    yield from _gauge("forebay_buffer_oldest_seconds", "Age of the oldest buffered message.", figures.oldest_seconds)
    yield from _gauge(
        "forebay_buffer_partitions_held", "Partitions with messages in failover.", figures.partitions_fenced
    )
    yield from _gauge("forebay_buffer_failed_events", "Buffered messages that the store refuses.", figures.failed)
    yield from _gauge(
        "forebay_buffer_damaged_files", "Files of bytes set aside as damaged.", len(figures.damaged_files)
    )
    yield from _head("forebay_failovers_total", "counter", "How often pushes began to go to the failover file.")
    yield f"forebay_failovers_total {figures.failovers}"
    yield from _by_kind(
        "forebay_buffer_pending_events", "gauge", "Buffered messages that wait.", figures.pending_by_lane
    )
    yield from _by_kind(
        "forebay_buffer_appended_total", "counter", "Messages written to buffer files.", figures.appended_by_lane
    )
    for name, text in (
        ("drained", "Buffered messages stored."),
        ("duplicates", "Buffered messages that were stored already."),
        ("store_writes", "Writes to the store that these took."),
        ("rotations", "Buffer files taken from the appenders."),
        ("refused", "Buffered messages moved to failed files."),
        ("damaged_bytes", "Bytes that held no message."),
    ):
        values = {kind: getattr(counts, name) for kind, counts in figures.counts.items()}
        yield from _by_kind(f"forebay_buffer_{name}_total", "counter", text, values)


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, "gauge", text)
    yield f"{name} {value}"


def _by_kind(name: str, metric: str, text: str, values: dict[str, int]) -> Iterator[str]:
    yield from _head(name, metric, text)
    for kind, value in values.items():
        yield f'{name}{{kind="{kind}"}} {value}'


def _head(name: str, metric: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {metric}"


ROUTES = (
    Route(
        "GET",
        "/api/v1/status/buffers",
        show_buffers,
        "What waits in buffer files.",
        Scope.READ,
        answers={200: Buffers},
        problems=(503,),
        needs=Needs.NOTHING,
    ),
)
