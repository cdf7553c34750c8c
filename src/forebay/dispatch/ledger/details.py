"""Queue metrics: what waits, by class, flow and action; what runs; which plugin serves what; counts for health checks.

Counts come from `action_queues`, which triggers keep exact, and the oldest of each from an index. So a look costs as
much as there are classes, flows and actions, however many parcels wait. The oldest warm parcel is the first in line.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US
from forebay.dispatch.ledger.history import LEASE_EXPIRIES, REQUEUES
from forebay.dispatch.tables import SQL
from forebay.dispatch.views import (
    ClassFigures,
    ColdQueue,
    DispatchFigures,
    HeldQueue,
    QueueDetails,
    RunningTask,
    WarmQueue,
)


def detailed() -> Work[QueueDetails]:
    """What waits warm and cold."""
    now_us = yield Now()
    warm = yield Ask(SQL["details_warm"])
    cold = yield Ask(SQL["details_cold"])
    return QueueDetails([WarmQueue(*row) for row in warm], [ColdQueue(*row) for row in cold], now_us)


def running(stale_seconds: float, limit: int = 10_000) -> Work[list[RunningTask]]:
    """Parcels under leases whose workers were heard lately, the longest running first, up to so many."""
    now_us = yield Now()
    since_us = now_us - int(stale_seconds * SECOND_US)
    rows = yield Ask(SQL["details_running"], {"since_us": since_us, "limit": limit})
    return [
        RunningTask(action_class, flow, action, did, started_us, max(0, now_us - started_us), worker, beat_us)
        for action_class, flow, action, did, started_us, worker, beat_us in rows
    ]


class _Workers:
    """Which patterns were requested by which worker, the one with the latest request first."""

    def __init__(self, rows: list[tuple[str, str, str, int]]) -> None:
        self._served = [
            (msgspec.json.decode(classes, type=list[str]), plugin, seen) for _, classes, plugin, seen in rows
        ]

    def is_served(self, action_class: str, since_us: int) -> bool:
        return any(
            seen_us >= since_us and any(fnmatchcase(action_class, pattern) for pattern in patterns)
            for patterns, _, seen_us in self._served
        )

    def plugin(self, action_class: str) -> str:
        for patterns, plugin, _ in self._served:
            if plugin and any(fnmatchcase(action_class, pattern) for pattern in patterns):
                return plugin
        return ""


def plugins() -> Work[dict[str, str]]:
    """Action classes and the plugin that provides each, as the worker that was heard last says."""
    workers = _Workers((yield Ask(SQL["details_workers"])))
    classes = yield Ask(SQL["details_class_names"])
    found = {action_class: workers.plugin(action_class) for [action_class] in classes}
    return {action_class: plugin for action_class, plugin in found.items() if plugin}


def figures(worker_seconds: float) -> Work[DispatchFigures]:
    """Counts for metrics and health checks; a class is served by workers with a request within so many seconds."""
    now_us = yield Now()
    workers = _Workers((yield Ask(SQL["details_workers"])))
    since_us = now_us - int(worker_seconds * SECOND_US)
    details = yield from detailed()
    oldest_us: dict[str, int] = defaultdict(lambda: now_us)
    waiting: list[WarmQueue | ColdQueue] = [*details.warm, *details.cold]
    for row in waiting:
        if row.oldest_queued_us is not None:
            oldest_us[row.action_class] = min(oldest_us[row.action_class], row.oldest_queued_us)
    rows = yield Ask(SQL["details_classes"])
    classes = [
        ClassFigures(
            name,
            queued,
            cold,
            leased,
            (now_us - oldest_us[name]) / SECOND_US,
            workers.is_served(name, since_us),
            bool(is_cold),
            went_cold,
            went_warm,
        )
        for name, queued, cold, leased, is_cold, went_cold, went_warm in rows
    ]
    [[joining, errors, exporting]] = yield Ask(SQL["details_counts"])
    numbers = dict((yield Ask(SQL["numbers"], {"names": [[REQUEUES], [LEASE_EXPIRIES]]})))
    holds = yield Ask(SQL["holds"])
    return DispatchFigures(
        classes,
        sum(each.queued for each in classes),
        sum(each.cold for each in classes),
        sum(each.leased for each in classes),
        joining,
        errors,
        numbers.get(REQUEUES, 0),
        numbers.get(LEASE_EXPIRIES, 0),
        [HeldQueue(*row) for row in holds],
        now_us,
        exporting,
    )
