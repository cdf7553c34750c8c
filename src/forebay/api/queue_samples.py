"""Queues and groups as samples for `/metrics`: bounded in number, and written once for each count.

A queue has `QUEUE_SERIES` series and each group of it `GROUP_SERIES`. In the order in which the queues were made, each
that fits within `series_max` with all of its groups has series of its own; so a queue keeps them while others come. All
others are added up in series whose queue and group are `other`, of ages the highest, and how many those are is a sample
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from forebay.api.queue_figures import GroupNow, QueueFigures, QueueNow
from forebay.telemetry import metrics
from forebay.telemetry.metrics import Metric
from forebay.telemetry.page import Page, labels_text, sample_lines

OTHER = "other"

_QUEUE: tuple[tuple[Metric, Callable[[QueueNow], float]], ...] = (
    (metrics.QUEUE_DEPTH, lambda queue: queue.depth),
    (metrics.QUEUE_OLDEST_MESSAGE, lambda queue: round(queue.oldest_seconds, 3)),
    (metrics.QUEUE_MESSAGES, lambda queue: queue.messages),
    (metrics.QUEUE_MESSAGE_BYTES, lambda queue: queue.size_bytes),
    (metrics.QUEUE_DEAD_LETTERS, lambda queue: queue.dead_letters),
    (metrics.QUEUE_PARTITIONS, lambda queue: queue.partitions),
    (metrics.QUEUE_ACCEPTED, lambda queue: queue.accepted),
)
_GROUP: tuple[tuple[Metric, Callable[[GroupNow], float]], ...] = (
    (metrics.GROUP_WAITING, lambda group: group.waiting),
    (metrics.GROUP_LAG, lambda group: group.lag_messages),
    (metrics.GROUP_LAG_SECONDS, lambda group: round(group.lag_seconds, 3)),
    (metrics.GROUP_LEASED, lambda group: group.leased),
    (metrics.GROUP_DEAD_LETTERS, lambda group: group.dead_letters),
)
QUEUE_SERIES, GROUP_SERIES = len(_QUEUE), len(_GROUP)


class Shown(NamedTuple):
    queues: list[QueueNow]
    """With series of their own."""
    other: list[QueueNow]


def shown_queues(figures: QueueFigures, series_max: int) -> Shown:
    """Which queues have series of their own."""
    shown, left = Shown([], []), series_max
    for queue in sorted(figures.queues, key=lambda each: (each.created_us, each.name)):
        cost = QUEUE_SERIES + GROUP_SERIES * len(queue.groups)
        is_own = cost <= left and queue.name != OTHER
        (shown.queues if is_own else shown.other).append(queue)
        left -= cost if is_own else 0
    return shown


class QueueSamples:
    """Keeps the text of the last count. Where it is read, that of the next count is written with the count."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._last: tuple[QueueFigures | None, list[tuple[Metric, str]]] = (None, [])

    def prepare(self, figures: QueueFigures) -> None:
        if self._last[0] is not None:
            self._last = (figures, self._written(figures))

    def add(self, page: Page, figures: QueueFigures) -> None:
        """Takes some 50 ms for 10,000 groups if it was not written yet: not for the event loop."""
        of, blocks = self._last
        if of is not figures:
            blocks = self._written(figures)
            self._last = (figures, blocks)
        for metric, block in blocks:
            page.add_block(metric, block)

    def _written(self, figures: QueueFigures) -> list[tuple[Metric, str]]:
        shown = shown_queues(figures, self._series_max)
        queues = [*shown.queues, *([_other_queue(shown.other)] if shown.other else [])]
        labels = [labels_text(("queue",), (queue.name,)) for queue in queues]
        blocks = [_block(metric, labels, [value(queue) for queue in queues]) for metric, value in _QUEUE]
        groups = [(queue.name, group) for queue in queues for group in queue.groups]
        labels = [labels_text(("queue", "group"), (queue, group.name)) for queue, group in groups]
        blocks += [_block(metric, labels, [value(group) for _, group in groups]) for metric, value in _GROUP]
        summed = len(shown.other), sum(len(queue.groups) for queue in shown.other)
        blocks.append(_block(metrics.QUEUES_IN_OTHER, [""], [summed[0]]))
        blocks.append(_block(metrics.GROUPS_IN_OTHER, [""], [summed[1]]))
        return blocks


def _block(metric: Metric, labels: Sequence[str], values: Sequence[float]) -> tuple[Metric, str]:
    return metric, sample_lines(metric.name, labels, values)


def _other_queue(queues: Sequence[QueueNow]) -> QueueNow:
    groups = [group for queue in queues for group in queue.groups]
    return QueueNow(
        name=OTHER,
        namespace="",
        task="",
        created_us=0,
        partitions=sum(queue.partitions for queue in queues),
        accepted=sum(queue.accepted for queue in queues),
        messages=sum(queue.messages for queue in queues),
        size_bytes=sum(queue.size_bytes for queue in queues),
        depth=sum(queue.depth for queue in queues),
        oldest_seconds=max(queue.oldest_seconds for queue in queues),
        dead_letters=sum(queue.dead_letters for queue in queues),
        lost=sum(queue.lost for queue in queues),
        groups=(_other_group(groups),) if groups else (),
    )


def _other_group(groups: Sequence[GroupNow]) -> GroupNow:
    return GroupNow(
        name=OTHER,
        waiting=sum(group.waiting for group in groups),
        leased=sum(group.leased for group in groups),
        lag_messages=sum(group.lag_messages for group in groups),
        lag_seconds=max(group.lag_seconds for group in groups),
        dead_letters=sum(group.dead_letters for group in groups),
        partitions=sum(group.partitions for group in groups),
        partitions_with_lag=sum(group.partitions_with_lag for group in groups),
    )
