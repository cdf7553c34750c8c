"""What waits in buffer files: for people, and as metrics."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.problems import without_paths
from forebay.api.responses import answered
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.service import Service
from forebay.ingest.figures import BufferFigures
from forebay.telemetry import metrics
from forebay.telemetry.page import Page


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
    """False while another process drains the directory; its messages are then counted by that one."""


async def buffer_figures(service: Service) -> BufferFigures:
    return await service.intake.figures()


async def show_buffers(service: Service, request: Request) -> Response:
    figures, caller = await buffer_figures(service), request.caller
    recovery = service.intake.recovery
    return answered(
        Buffers(
            figures.pending,
            figures.failed,
            service.is_db_healthy,
            without_paths(figures.reason, service.folders) or None,
            str(recovery) if recovery.is_running else None,
            figures.size_bytes,
            round(figures.oldest_seconds, 3),
            figures.pending_by_kind,
            {queue: count for queue, count in figures.queues.items() if caller.allows(queue)},
            figures.partitions_fenced,
            [failed for one in figures.failed_files if caller.allows((failed := FailedFile(*one)).queue)],
            figures.damaged_files if caller.patterns is None else [],
            figures.strangers if caller.patterns is None else [],
            figures.is_owner,
        )
    )


async def add_buffers(page: Page, service: Service) -> None:
    """What waits, as metrics."""
    figures = await buffer_figures(service)
    page.add(metrics.DB_HEALTHY, int(figures.is_db_healthy))
    page.add(metrics.BUFFER_BYTES, figures.size_bytes)
    page.add(metrics.BUFFER_OLDEST, figures.oldest_seconds)
    page.add(metrics.BUFFER_HELD, figures.partitions_fenced)
    page.add(metrics.BUFFER_FAILED, figures.failed)
    page.add(metrics.BUFFER_DAMAGED_FILES, len(figures.damaged_files))
    page.add(metrics.FAILOVERS, figures.failovers)
    for kind, value in figures.pending_by_kind.items():
        page.add(metrics.BUFFER_PENDING, value, kind)
    for kind, value in figures.appended_by_kind.items():
        page.add(metrics.BUFFER_APPENDED, value, kind)
    for kind, counts in figures.counts.items():
        page.add(metrics.BUFFER_DRAINED, counts.drained, kind)
        page.add(metrics.BUFFER_DUPLICATES, counts.duplicates, kind)
        page.add(metrics.BUFFER_STORE_WRITES, counts.store_writes, kind)
        page.add(metrics.BUFFER_ROTATIONS, counts.rotations, kind)
        page.add(metrics.BUFFER_REFUSED, counts.refused, kind)
        page.add(metrics.BUFFER_DAMAGED, counts.damaged_bytes, kind)


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
        queues=Queues.SHOWN,
    ),
)
