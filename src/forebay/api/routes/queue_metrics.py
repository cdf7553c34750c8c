"""Queue metrics of dispatch in DeltaFi's JSON: what waits warm and cold, what provides the actions, what runs."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.reach import shown_flows
from forebay.api.responses import answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service


class WarmQueueMetrics(Struct, rename="camel"):
    action_class: str
    flow_name: str
    flow_type: str
    action_name: str
    count: int
    oldest_queued_at: str | None


class ColdQueueMetrics(Struct, rename="camel"):
    flow_name: str
    flow_type: str
    action_name: str
    action_class: str
    count: int
    oldest_queued_at: str | None


class DetailedQueueMetrics(Struct, rename="camel"):
    warm_queues: list[WarmQueueMetrics]
    cold_queues: list[ColdQueueMetrics]
    timestamp: str


class RunningTaskShape(Struct, rename="camel"):
    action_class: str
    action_name: str
    did: str
    start_time: str
    running_for_ms: int
    app_name: str


class RunningTasks(Struct, rename="camel"):
    tasks: list[RunningTaskShape]
    heartbeat_threshold_ms: int


def _seconds(us: int) -> str:
    """A time with a fraction of a second only where it has one, as DeltaFi writes it."""
    text = iso(us)
    return text.replace(".000000Z", "Z")


def _oldest(us: int | None) -> str | None:
    return None if us is None else _seconds(us)


async def detailed(service: Service, request: Request) -> Response:
    """By action class, flow and action, at most some seconds old: see `dispatch.metrics_time`."""
    found, flows = await service.dispatcher.detailed(), await shown_flows(service, request)
    warm = [
        WarmQueueMetrics(
            each.action_class, each.flow, each.flow_type, each.action, each.count, _oldest(each.oldest_queued_us)
        )
        for each in found.warm
        if flows is None or each.flow in flows
    ]
    cold = [
        ColdQueueMetrics(
            each.flow, each.flow_type, each.action, each.action_class, each.count, _oldest(each.oldest_queued_us)
        )
        for each in found.cold
        if flows is None or each.flow in flows
    ]
    return answered(DetailedQueueMetrics(warm, cold, _seconds(found.at_us)))


async def action_plugins(service: Service, request: Request) -> Response:
    """By action class, as the workers say that serve it."""
    return answered(dict(await service.dispatcher.plugins()))


async def running(service: Service, request: Request) -> Response:
    """Parcels under leases whose workers have sent a heartbeat lately."""
    stale_us = int(service.dispatcher.limits.stale_seconds * 1_000_000)
    flows = await shown_flows(service, request)
    tasks = [
        RunningTaskShape(
            task.action_class, task.action, task.did, _seconds(task.started_us), task.running_us // 1000, task.worker
        )
        for task in await service.dispatcher.running()
        if task.started_us + task.running_us - task.beat_us <= stale_us and (flows is None or task.flow in flows)
    ]
    return answered(RunningTasks(tasks, stale_us // 1000))


_BASE = "/api/v2/metrics/queues"

ROUTES = (
    Route(
        "GET",
        f"{_BASE}/detailed",
        detailed,
        "What waits warm and cold.",
        Scope.READ,
        answers={200: DetailedQueueMetrics},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        f"{_BASE}/action-plugins",
        action_plugins,
        "What provides the actions.",
        Scope.READ,
        answers={200: dict[str, str]},
        problems=(503,),
    ),
    Route(
        "GET",
        f"{_BASE}/running",
        running,
        "What runs.",
        Scope.READ,
        answers={200: RunningTasks},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
)
