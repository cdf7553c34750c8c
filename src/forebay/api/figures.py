"""Queues in numbers: what several resources say about them, counted in one place."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from forebay.api.exchange import Request
from forebay.api.parameters import Name, Switch, Text
from forebay.api.problems import not_found
from forebay.api.responses import iso_or_none
from forebay.api.service import Service
from forebay.broker.overview import GroupLag, QueueStatus
from forebay.model.internal_queues import is_internal

SEARCH = Text("search", "", "Only names that contain this.")
NAMESPACE = Name("namespace", None, "Only of this namespace.")
TASK = Name("task", None, "Only of this task.")
INTERNAL = Switch("internal", False, "Also queues that Forebay makes for itself (`.flow.…`, `.export.…`).")
FILTERS = (SEARCH, NAMESPACE, TASK, INTERNAL)


class MessageCounts(Struct, rename="camel"):
    """`total` are kept; `pending` wait for the group that is furthest behind; `processing` are leased."""

    total: int
    pending: int
    processing: int
    completed: int
    dead_letter: int
    lost: int
    """Accepted, and not readable any more."""


class QueueInfo(Struct, rename="camel"):
    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: str | None
    partitions: int
    first_seq: int
    next_seq: int
    size_bytes: int
    messages: MessageCounts
    kept_seconds: int | None
    """How old a message may become; null for any age."""
    completed_kept_seconds: int | None
    """How old one may become that every group has finished; null for any age."""


def counts_of(statuses: Iterable[QueueStatus], lags: Iterable[GroupLag]) -> MessageCounts:
    """Added up over queues. Where no group reads a queue, all it keeps is pending."""
    by_queue: dict[str, list[GroupLag]] = {}
    for lag in lags:
        by_queue.setdefault(lag.queue, []).append(lag)
    total = pending = processing = dead = pushed = lost = 0
    for status in statuses:
        groups = by_queue.get(status.queue.name, [])
        leased = max((lag.leased for lag in groups), default=0)
        behind = max((lag.lag_messages for lag in groups), default=status.messages)
        total += status.messages
        pending += max(behind - leased, 0)
        processing += leased
        dead += status.dead_letters
        pushed += status.pushed
        lost += status.lost
    completed = max(pushed - pending - processing - dead - lost, 0)
    return MessageCounts(total, pending, processing, completed, dead, lost)


def info_of(status: QueueStatus, lags: Iterable[GroupLag]) -> QueueInfo:
    queue = status.queue
    return QueueInfo(
        queue.name,
        queue.name,
        queue.namespace,
        queue.task,
        queue.options.priority,
        iso_or_none(queue.created_us),
        status.partitions,
        status.first_seq,
        status.next_seq,
        status.size_bytes,
        counts_of([status], lags),
        queue.options.kept_seconds or None,
        queue.options.completed_kept_seconds or None,
    )


async def status_of(service: Service, name: str) -> tuple[QueueStatus, list[GroupLag]]:
    found = await service.store.queues(name)
    if not found:
        raise not_found(f"no queue {name!r}")
    return found[0], await service.store.groups(name)


async def listed(service: Service, request: Request) -> tuple[list[QueueStatus], list[GroupLag]]:
    """All queues and groups that the key may see, without internal queues unless the query asks for them."""
    allows, is_internal_too = request.caller.allows, INTERNAL.read(request.query)

    def is_shown(queue: str) -> bool:
        return allows(queue) and (is_internal_too or not is_internal(queue))

    statuses = [status for status in await service.store.queues() if is_shown(status.queue.name)]
    return statuses, [lag for lag in await service.store.groups() if is_shown(lag.queue)]


async def chosen(service: Service, request: Request) -> tuple[list[QueueStatus], list[GroupLag]]:
    """The queues that the query asks for, by name."""
    search, namespace = SEARCH.read(request.query), NAMESPACE.read(request.query)
    task = TASK.read(request.query)
    statuses, lags = await listed(service, request)
    found = [
        status
        for status in statuses
        if search in status.queue.name
        and namespace in (None, status.queue.namespace)
        and task in (None, status.queue.task)
    ]
    return found, lags
