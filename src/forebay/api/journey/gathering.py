"""A look at the journey: each part is read in its own way, and one that does not answer does not hide the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.api.flow_states import report_now
from forebay.api.journey.figures import BuffersNow, DiskNow, ExportNow, Look, StoreLook
from forebay.api.problems import Problem, without_paths
from forebay.api.queue_figures import queue_figures
from forebay.api.routing import Needs
from forebay.clock import SECOND_US
from forebay.errors import ForebayError
from forebay.export.way_out import Outlet

if TYPE_CHECKING:
    from forebay.api.service import Service

STORE_SECONDS_MAX = 5.0


async def take_look(service: Service, last: Look | None) -> Look:
    """`last` gives the figures of a store that does not answer."""
    found = await _store_now(service)
    store = found or (last.store if last else StoreLook())
    return Look(
        at_us=service.clock.now_us(),
        taken_here=service.counts.pushed + _received(service),
        store=store,
        is_store_there=found is not None,
        buffers=await _buffers(service),
        exports=await asyncio.to_thread(_exports, service, store),
        lost=dict(service.lost),
        is_push_paused=service.is_push_paused,
        is_pop_paused=service.is_pop_paused,
        disks=[
            DiskNow(disk.path.name or "/", disk.free_bytes / disk.size_bytes)
            for disk in service.disks.disks
            if disk.level and disk.size_bytes
        ],
    )


async def _store_now(service: Service) -> StoreLook | None:
    """None where the store is away, or takes so long that the page had better say so."""
    if not service.is_db_healthy:
        return None
    try:
        service.check_serves(Needs.STORE)
        async with asyncio.timeout(STORE_SECONDS_MAX):
            return await _store(service)
    except (Problem, ForebayError, TimeoutError):
        return None


def _received(service: Service) -> int:
    """Items that receivers hand straight to a destination: what they push to queues is counted as pushed."""
    return sum(outlet.feed.counts["pushed_items"] for outlet in service.way_out.outlets.values())


async def _store(service: Service) -> StoreLook:
    queues = (await queue_figures(service)).queues
    figures, warnings = await service.dispatch_watch.health()
    flows = await service.dispatcher.flows()
    running = await service.dispatcher.running() if figures.leased else ()
    now_us = await service.store.time_us()
    work = await service.dispatcher.flow_work()
    reports = [report_now(row, None, now_us, work.get(row.name)) for row in await service.store.flows()]
    return StoreLook(
        queues=queues,
        classes=figures.classes,
        warm=figures.queued,
        cold=figures.cold,
        joining=figures.joining,
        leased=figures.leased,
        exporting=figures.exporting,
        errors=figures.errors,
        warnings=warnings,
        cut=sum(max(flow.next_seq - 1, 0) for flow in flows),
        paused_flows=[flow.name for flow in flows if flow.state == "PAUSED"],
        stopped_flows=[(flow.name, flow.reason) for flow in flows if flow.state == "STOPPED"],
        longest_run_seconds=max((task.running_us for task in running), default=0) / SECOND_US,
        reports=reports,
    )


async def _buffers(service: Service) -> BuffersNow:
    figures = await service.intake.figures()
    return BuffersNow(
        figures.pending,
        figures.failed,
        len(figures.damaged_files),
        figures.oldest_seconds,
        without_paths(figures.reason, service.folders),
    )


def _exports(service: Service, store: StoreLook) -> list[ExportNow]:
    """Looks at directories of dead letters, so not on the event loop."""
    groups = {(queue.name, group.name): group for queue in store.queues for group in queue.groups}
    way_out, now_us = service.way_out, service.clock.now_us()
    found = [outlet_now(outlet, now_us) for outlet in list(way_out.outlets.values())]
    for export in list(way_out.exports.values()):
        delivery, options = export.exporter.delivery, export.feed.options
        group = groups.get((options.queue, options.group))
        found.append(
            ExportNow(
                name=export.name,
                kind="export",
                waiting=group.lag_messages if group else 0,
                oldest_seconds=group.lag_seconds if group else 0.0,
                breaker=delivery.breaker.state.value,
                is_paused=export.exporter.is_paused,
                dead=group.dead_letters if group else 0,
                dropped=0,
                last_error=delivery.last_error,
                taken_items=export.feed.counts["leased"],
                sent_items=delivery.counts["sent_items"],
                at_risk=0,
                retry_seconds=delivery.seconds_until_open(),
                backoff_seconds=delivery.backoff_seconds,
            )
        )
    return found


def outlet_now(outlet: Outlet, now_us: int) -> ExportNow:
    """A destination that receivers feed. At risk is what a kill -9 would cost, in the failover queue too."""
    feed, delivery = outlet.feed, outlet.exporter.delivery
    figures = feed.queue.figures()
    oldest_us = figures.oldest_us or now_us
    return ExportNow(
        name=outlet.name,
        kind="destination",
        waiting=figures.batches,
        oldest_seconds=max(now_us - oldest_us, 0) / SECOND_US,
        breaker=delivery.breaker.state.value,
        is_paused=outlet.exporter.is_paused,
        dead=len(feed.dead_letters.ids()),
        dropped=sum(feed.dropped.values()),
        last_error=delivery.last_error,
        taken_items=feed.counts["pushed_items"],
        sent_items=delivery.counts["sent_items"],
        at_risk=figures.unwritten_batches + feed.failover.figures().unwritten_batches,
        retry_seconds=delivery.seconds_until_open(),
        backoff_seconds=delivery.backoff_seconds,
    )
