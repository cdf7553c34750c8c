"""Namespaces, tasks, and everything together, in numbers."""

from __future__ import annotations

from msgspec import Struct

from forebay.api.exchange import Request, Response
from forebay.api.figures import FILTERS, INTERNAL, MessageCounts, chosen, counts_of, listed
from forebay.api.responses import answered, iso
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.model.queue import DEFAULT_GROUP


class NamedCounts(Struct):
    namespace: str
    queues: int
    partitions: int
    messages: MessageCounts


class TaskCounts(Struct):
    task: str
    queues: int
    partitions: int
    messages: MessageCounts


class Overview(Struct, rename="camel"):
    queues: int
    partitions: int
    namespaces: int
    tasks: int
    consumer_groups: int
    messages: MessageCounts
    timestamp: str


async def list_namespaces(service: Service, request: Request) -> Response:
    statuses, lags = await chosen(service, request)
    names = sorted({status.queue.namespace for status in statuses})
    return answered(
        {
            "namespaces": [
                NamedCounts(name, len(own), sum(s.partitions for s in own), counts_of(own, lags))
                for name in names
                if (own := [status for status in statuses if status.queue.namespace == name])
            ]
        }
    )


async def list_tasks(service: Service, request: Request) -> Response:
    statuses, lags = await chosen(service, request)
    names = sorted({status.queue.task for status in statuses})
    return answered(
        {
            "tasks": [
                TaskCounts(name, len(own), sum(s.partitions for s in own), counts_of(own, lags))
                for name in names
                if (own := [status for status in statuses if status.queue.task == name])
            ]
        }
    )


async def overview(service: Service, request: Request) -> Response:
    statuses, lags = await listed(service, request)
    return answered(
        Overview(
            len(statuses),
            sum(status.partitions for status in statuses),
            len({status.queue.namespace for status in statuses}),
            len({status.queue.task for status in statuses}),
            len({lag.group for lag in lags if lag.group != DEFAULT_GROUP}),
            counts_of(statuses, lags),
            iso(service.clock.now_us()),
        )
    )


ROUTES = (
    Route(
        "GET",
        "/api/v1/resources/namespaces",
        list_namespaces,
        "List namespaces.",
        Scope.READ,
        answers={200: dict[str, list[NamedCounts]]},
        query=FILTERS,
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        "/api/v1/resources/tasks",
        list_tasks,
        "List tasks.",
        Scope.READ,
        answers={200: dict[str, list[TaskCounts]]},
        query=FILTERS,
        problems=(503,),
        queues=Queues.SHOWN,
    ),
    Route(
        "GET",
        "/api/v1/resources/overview",
        overview,
        "Everything in numbers.",
        Scope.READ,
        answers={200: Overview},
        query=(INTERNAL,),
        problems=(503,),
        queues=Queues.SHOWN,
    ),
)
