"""From looks to stages and rates: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.api.journey.figures import Look, StageFigures
from forebay.api.queue_figures import QueueNow
from forebay.clock import SECOND_US
from forebay.model.internal_queues import is_internal


def queues_of(look: Look) -> list[QueueNow]:
    """Queues of users, those with the most waiting first."""
    shown = [queue for queue in look.store.queues if not is_internal(queue.name)]
    return sorted(shown, key=lambda queue: (-queue.depth, queue.name))


def unfinished(queue: QueueNow) -> int:
    """Messages that the group furthest behind has not finished, leased ones included."""
    return max([group.lag_messages for group in queue.groups], default=queue.messages)


def stages_of(look: Look, queues: Iterable[QueueNow]) -> dict[str, StageFigures]:
    """The figures of each stage, in the order of the journey."""
    store, buffers = look.store, look.buffers
    now = list(queues)
    accepted, waiting = sum(each.accepted for each in now), sum(map(unfinished, now))
    risk_of_sends = sum(each.at_risk for each in look.exports)
    read = sum(report.rows for report in store.reports)
    left_out = sum(report.bad_rows + report.skipped_rows for report in store.reports)
    return {
        "ingest": StageFigures(
            look.taken_here,
            look.taken_here - buffers.pending,
            buffers.pending,
            buffers.oldest_seconds,
            buffers.pending + buffers.failed,
        ),
        "queues": StageFigures(
            accepted, accepted - waiting, waiting, max([queue.oldest_seconds for queue in now], default=0.0)
        ),
        "dispatch": StageFigures(
            store.cut,
            read if store.reports else None,
            store.warm + store.cold + store.joining,
            max((each.oldest_wait_seconds for each in store.classes), default=0.0),
        ),
        "spark": StageFigures(read, read - left_out, store.leased, store.longest_run_seconds),
        "export": StageFigures(
            sum(each.taken_items for each in look.exports),
            sum(each.sent_items for each in look.exports),
            sum(each.waiting for each in look.exports),
            max((each.oldest_seconds for each in look.exports), default=0.0),
            risk_of_sends,
        ),
    }


def rate(before: int | None, after: int | None, span_us: int) -> float | None:
    """Per second. A total that has fallen (a server or a queue that began anew) counts as nothing."""
    if before is None or after is None or span_us <= 0:
        return None
    return round(max(after - before, 0) * SECOND_US / span_us, 3)


def samples_of(
    stages: Mapping[str, StageFigures], before: Mapping[str, StageFigures] | None, span_us: int
) -> dict[str, float]:
    """The figures of a sample, by `stage.figure`; rates are 0 where there is nothing to compare with."""
    found: dict[str, float] = {}
    for name, now in stages.items():
        then = before.get(name) if before else None
        for figure, total, last in (
            ("in", now.taken, then.taken if then else None),
            ("out", now.given, then.given if then else None),
        ):
            if total is not None:
                found[f"{name}.{figure}"] = rate(last, total, span_us) or 0.0
        found[f"{name}.waiting"] = now.waiting
        found[f"{name}.oldest"] = round(now.oldest_seconds, 3)
        found[f"{name}.risk"] = now.at_risk
    return found
