"""How long things take on this server: histograms that are filled by request, batch or cycle, never by message.

    before = latencies(service)["push"]
    …
    latencies(service)["push"].since(before).quantile(0.99)

| name | from … to |
|---|---|
| `push` | the messages are read … they are as durable as their receipts say |
| `pop` | the store is called … it has answered, be it with nothing; waiting for messages is not in it |
| `queue` | the oldest message of a popped batch was accepted … it is delivered |
| `commit` | work for the store … it is committed: what was waiting together, or a group of pushes on PostgreSQL |
| `append`, `sync` | a record for the commit log … it is durable; of that, the write that the disk confirms |
| `action` | a worker has leased parcels … they are completed; of all action classes |
| `export` | a batch is sent … the destination has answered; of all destinations |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.model.histogram import LONG, SHORT, Distribution, Histogram
from forebay.telemetry import metrics
from forebay.telemetry.page import Page

if TYPE_CHECKING:
    from forebay.api.service import Service


@dataclass(slots=True)
class Latencies:
    """Those of the requests themselves."""

    push: Histogram = field(default_factory=Histogram)
    pop: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=lambda: Histogram(LONG))


def latencies(service: Service) -> dict[str, Distribution]:
    """All of them, since the process began. What a store has not is left out."""
    own, store = service.latencies, service.store.times()
    exporters = service.way_out.exporters().values()
    found = {
        "push": own.push.now(),
        "pop": own.pop.now(),
        "queue": own.queue.now(),
        "commit": store.commit.now(),
        "append": store.append.now() if store.append else None,
        "sync": store.sync.now() if store.sync else None,
        "action": _added(service.dispatcher.action_times().values(), LONG),
        "export": _added((exporter.delivery.times.now() for exporter in exporters), SHORT),
    }
    return {name: one for name, one in found.items() if one is not None}


def _added(parts: Iterable[Distribution], bounds: tuple[float, ...]) -> Distribution:
    counts, total = [0] * (len(bounds) + 1), 0.0
    for part in parts:
        counts = [one + other for one, other in zip(counts, part.counts, strict=True)]
        total += part.sum_seconds
    return Distribution(bounds, tuple(counts), total)


def add_latencies(page: Page, service: Service) -> None:
    own, store = service.latencies, service.store.times()
    page.add_histogram(metrics.PUSH_SECONDS, own.push.now())
    page.add_histogram(metrics.POP_SECONDS, own.pop.now())
    page.add_histogram(metrics.TIME_IN_QUEUE_SECONDS, own.queue.now())
    page.add_histogram(metrics.STORE_COMMIT_SECONDS, store.commit.now())
    if store.append is not None and store.sync is not None:
        page.add_histogram(metrics.LOG_APPEND_SECONDS, store.append.now())
        page.add_histogram(metrics.LOG_SYNC_SECONDS, store.sync.now())
    page.declare(metrics.ACTION_SECONDS)
    for action_class, found in sorted(service.dispatcher.action_times().items()):
        page.add_histogram(metrics.ACTION_SECONDS, found, action_class)
