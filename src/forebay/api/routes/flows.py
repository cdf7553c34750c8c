"""Flows: what their workers say of them, what people want of them, and both as metrics.

A worker reports about once a second and gets to know what is wanted. It has a flow as long as it reports; a second
worker that names the flow gets the name of the one that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from forebay.api.exchange import Request, Response
from forebay.api.flow_states import report_now, report_of
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Switch, checked_name
from forebay.api.problems import Problem, not_found
from forebay.api.responses import answered, iso_or_none
from forebay.api.routing import Needs, Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.flow_rows import FlowRow
from forebay.errors import StoreUnavailable
from forebay.flows.flow_report import QUIET_SECONDS, FlowReport
from forebay.flows.supervision import State
from forebay.telemetry import metrics
from forebay.telemetry.page import Page

FLOWS_MAX = 1_000
"""In one report."""
NEW = Switch("new", False, "Also a flow that no worker has reported yet.")

_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class FlowReportsBody(Struct, rename="camel"):
    """What a worker says. `names` are all flows that it has, `flows` those of which there is something to say."""

    worker: _Name
    names: Annotated[list[_Name], Meta(max_length=FLOWS_MAX)]
    flows: Annotated[list[FlowReport], Meta(max_length=FLOWS_MAX)] = []


class FlowOrder(Struct, rename="camel"):
    """What is wanted of a flow."""

    name: str
    is_paused: bool
    resumes: int
    runs_at: str
    """The worker that has it; empty if it is the one that asks."""
    known: FlowReport | None
    """What is kept about it."""


class FlowOrders(Struct, rename="camel"):
    flows: list[FlowOrder]


class FlowInfo(Struct, rename="camel"):
    """A flow as it stands. `state` is `lost` when its worker has not been heard for a while."""

    report: FlowReport
    is_paused: bool
    worker: str
    updated_at: str | None


class FlowList(Struct, rename="camel"):
    flows: list[FlowInfo]


class FlowForgotten(Struct, rename="camel"):
    success: bool
    name: str


async def _infos(service: Service, rows: Iterable[FlowRow]) -> list[FlowInfo]:
    """With the lag of each flow's group as it is now; None where the group does not exist yet."""
    now_us = await service.store.time_us()
    work = await service.dispatcher.flow_work()
    lags: dict[str, dict[str, int]] = {}
    found = []
    for row in rows:
        report = report_of(row)
        queue = report.queue if report is not None else ""
        if queue and queue not in lags:
            is_there = await service.store.queue(queue) is not None
            lags[queue] = {lag.group: lag.lag_messages for lag in await service.store.groups(queue)} if is_there else {}
        lag = lags[queue].get(report.group) if report is not None and queue else None
        now = report_now(row, lag, now_us, work.get(row.name))
        found.append(FlowInfo(now, row.is_paused, row.worker, iso_or_none(row.updated_us)))
    return found


async def list_flows(service: Service, request: Request) -> Response:
    rows = [row for row in await service.store.flows() if _is_shown(request, row)]
    return answered(FlowList(await _infos(service, rows)))


def _is_shown(request: Request, row: FlowRow) -> bool:
    """Of a flow that no worker has reported yet the queue is not known."""
    report = report_of(row)
    return request.caller.allows(report.queue if report is not None else "")


async def _row(service: Service, request: Request, name: str) -> FlowRow:
    found = [row for row in await service.store.flows() if row.name == name]
    if not found:
        raise not_found(f"no flow {name!r}: no worker has told of it")
    report = report_of(found[0])
    request.caller.check_queue(report.queue if report is not None else "")
    return found[0]


async def show_flow(service: Service, request: Request) -> Response:
    (name,) = request.path
    (info,) = await _infos(service, [await _row(service, request, name)])
    return answered(info)


async def report_flows(service: Service, request: Request) -> Response:
    body = await read_body(FlowReportsBody, request)
    reports = {report.name: report for report in body.flows}
    kept = {row.name: row for row in await service.store.flows()}
    _check_reported(request, {*body.names, *reports}, [*reports.values()], kept)
    orders = []
    for index, name in enumerate(dict.fromkeys([*body.names, *reports])):
        checked_name(name, f"names[{index}]")
        report = reports.get(name)
        # A flow of which there is nothing to say yet keeps what is known of it, and has a worker from now on.
        text = msgspec.json.encode(report) if report is not None else kept.get(name, FlowRow(name)).report
        is_released = report is not None and report.state is State.STOPPED
        row = await service.store.report_flow(
            name, body.worker, text, quiet_seconds=QUIET_SECONDS, is_released=is_released
        )
        runs_at = "" if row.worker in ("", body.worker) else row.worker
        orders.append(FlowOrder(name, row.is_paused, row.resumes, runs_at, report_of(row)))
    return answered(FlowOrders(orders))


def _check_reported(request: Request, names: set[str], reports: list[FlowReport], kept: Mapping[str, FlowRow]) -> None:
    """Both what is said of a flow and what is known of it have to be of the key's queues."""
    known = [report for name in names if name in kept and (report := report_of(kept[name])) is not None]
    request.caller.check_queues(report.queue for report in [*reports, *known])


async def pause_flow(service: Service, request: Request) -> Response:
    """Its worker stops it within a second or so."""
    return await _wished(service, request, is_paused=True)


async def resume_flow(service: Service, request: Request) -> Response:
    """Its worker goes on with it, or tries it again if it has failed."""
    return await _wished(service, request, is_paused=False)


async def _wished(service: Service, request: Request, *, is_paused: bool) -> Response:
    (name,) = request.path
    if not NEW.read(request.query):
        await _row(service, request, name)
    else:
        request.caller.check_unrestricted("the queue of a flow that is not known yet could be any")
    (info,) = await _infos(service, [await service.store.pause_flow(name, is_paused)])
    return answered(info)


async def forget_flow(service: Service, request: Request) -> Response:
    (name,) = request.path
    if request.caller.patterns is not None:
        await _row(service, request, name)
    if not await service.store.forget_flow(name):
        raise not_found(f"no flow {name!r}: no worker has told of it")
    return answered(FlowForgotten(True, name))


async def add_flows(page: Page, service: Service) -> None:
    """Metrics of the flows; none where the store does not answer."""
    try:
        service.check_serves(Needs.STORE)
        infos = await _infos(service, await service.store.flows())
    except (Problem, StoreUnavailable):
        return
    for info in infos:
        report = info.report
        for state in State:
            page.add(metrics.FLOW_STATE, int(report.state is state), report.name, state)
        for metric, value in (
            (metrics.FLOW_ROWS, report.rows),
            (metrics.FLOW_BAD_ROWS, report.bad_rows),
            (metrics.FLOW_SKIPPED_ROWS, report.skipped_rows),
            (metrics.FLOW_BATCHES, report.batches),
            (metrics.FLOW_RESTARTS, report.restarts),
            (metrics.FLOW_BATCH_SECONDS, report.batch_seconds),
            (metrics.FLOW_LAG, report.lag),
        ):
            if value is not None:
                page.add(metric, value, report.name)


_BASE = "/api/v1/flows"

ROUTES = (
    Route(
        "GET",
        _BASE,
        list_flows,
        "How all flows stand.",
        Scope.READ,
        answers={200: FlowList},
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "POST",
        f"{_BASE}/reports",
        report_flows,
        "Say how flows stand, and get to know what is wanted of them.",
        Scope.WRITE,
        answers={200: FlowOrders},
        body=FlowReportsBody,
        problems=(413, 415, 503, 507),
        or_scope=Scope.CONSUME,
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        f"{_BASE}/{{name}}",
        show_flow,
        "How one flow stands.",
        Scope.READ,
        answers={200: FlowInfo},
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        f"{_BASE}/{{name}}",
        forget_flow,
        "Forget a flow that is not wanted any more.",
        Scope.ADMIN,
        answers={200: FlowForgotten},
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_BASE}/{{name}}/pause",
        pause_flow,
        "Pause a flow.",
        Scope.OPERATE,
        answers={200: FlowInfo},
        query=(NEW,),
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_BASE}/{{name}}/resume",
        resume_flow,
        "Resume a flow, or start one again that has failed.",
        Scope.OPERATE,
        answers={200: FlowInfo},
        query=(NEW,),
        problems=(404, 503, 507),
        queues=Queues.NAMED,
    ),
)
