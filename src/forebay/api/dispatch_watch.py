"""How dispatch is: its figures, what ought to be looked at, and both as metrics.

How many parcels wait cold is sampled beside the requests, so that growth can be reported.

The first `CLASSES_SHOWN_MAX` action classes by name have series of their own; the others are added up as the class
`other`, of ages the highest. As many flows have a series of the oldest message that is spared for them, and of
messages that they did not get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, get_args

from forebay.api.dispatching import Dispatching
from forebay.dispatch.health import Check, ColdHistory, HealthWarning, warnings
from forebay.dispatch.views import ClassFigures, DispatchFigures
from forebay.telemetry import metrics
from forebay.telemetry.page import Page

CLASSES_SHOWN_MAX = 1_000
OTHER = "other"


class DispatchHealth(NamedTuple):
    figures: DispatchFigures
    warnings: list[HealthWarning]


class DispatchWatch:
    def __init__(self, dispatcher: Dispatching) -> None:
        self._dispatcher = dispatcher
        self._cold = ColdHistory()

    async def look(self) -> None:
        """Take a sample: to be called every `health.SAMPLE_SECONDS`."""
        self._cold.note((await self._dispatcher.figures()).cold)

    async def health(self) -> DispatchHealth:
        figures = await self._dispatcher.figures()
        warm = {each.action_class: each.queued for each in figures.classes}
        cold = {each.action_class: each.cold for each in figures.classes}
        found = warnings(warm, cold, self._cold.growth(), unserved(figures), figures.untaken)
        return DispatchHealth(figures, found)


def unserved(figures: DispatchFigures) -> list[str]:
    """Action classes whose parcels wait while no worker asks for them."""
    return [each.action_class for each in figures.classes if (each.queued or each.cold) and not each.is_served]


def shown_classes(classes: Sequence[ClassFigures]) -> list[ClassFigures]:
    """Those with series of their own, and the sum of the others."""
    ordered = sorted(classes, key=lambda each: each.action_class)
    if len(ordered) <= CLASSES_SHOWN_MAX:
        return ordered
    ordered.sort(key=lambda each: each.action_class == OTHER)  # a class of that name is among those that are summed
    shown, rest = ordered[:CLASSES_SHOWN_MAX], ordered[CLASSES_SHOWN_MAX:]
    other = ClassFigures(
        OTHER,
        queued=sum(each.queued for each in rest),
        cold=sum(each.cold for each in rest),
        leased=sum(each.leased for each in rest),
        oldest_wait_seconds=max(each.oldest_wait_seconds for each in rest),
        is_served=all(each.is_served for each in rest),
        is_cold=any(each.is_cold for each in rest),
        went_cold=sum(each.went_cold for each in rest),
        went_warm=sum(each.went_warm for each in rest),
    )
    return [*shown, other]


def add_dispatch(page: Page, health: DispatchHealth) -> None:
    """Metrics of dispatch."""
    figures = health.figures
    page.declare(*metrics.METRICS["Dispatch"])
    for each in shown_classes(figures.classes):
        name = each.action_class
        page.add(metrics.ACTION_QUEUE_SIZE, each.queued, name)
        page.add(metrics.WARM_QUEUED, each.queued, name)
        page.add(metrics.COLD_QUEUED, each.cold, name)
        page.add(metrics.ACTION_QUEUE_LEASED, each.leased, name)
        page.add(metrics.ACTION_QUEUE_OLDEST, each.oldest_wait_seconds, name)
        page.add(metrics.ACTION_QUEUE_COLD, int(each.is_cold), name)
        page.add(metrics.ACTION_QUEUE_SERVED, int(each.is_served), name)
        page.add(metrics.ACTION_QUEUE_TRANSITIONS, each.went_cold, name, "cold")
        page.add(metrics.ACTION_QUEUE_TRANSITIONS, each.went_warm, name, "warm")
    page.add(metrics.CLASSES_WITHOUT_WORKER, len(unserved(figures)))
    for state, count in (
        ("QUEUED", figures.queued),
        ("COLD_QUEUED", figures.cold),
        ("LEASED", figures.leased),
        ("JOINING", figures.joining),
        ("EXPORTING", figures.exporting),
        ("ERROR", figures.errors),
    ):
        page.add(metrics.PARCELS, count, state)
    page.add(metrics.PARCEL_REQUEUES, figures.requeues)
    page.add(metrics.PARCEL_LEASE_EXPIRIES, figures.expiries)
    for hold in sorted(figures.holds, key=lambda hold: hold.flow)[:CLASSES_SHOWN_MAX]:
        page.add(metrics.PARCEL_HOLD, hold.seq, hold.flow, hold.queue_id)
    for flow in sorted(figures.lost)[:CLASSES_SHOWN_MAX]:
        page.add(metrics.PARCEL_MESSAGES_LOST, figures.lost[flow], flow)
    counts = Counter(found.check for found in health.warnings)
    for check in get_args(Check):
        page.add(metrics.DISPATCH_WARNINGS, counts[check], check)
