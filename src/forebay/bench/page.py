"""`forebay bench page`: what the web page costs its reader and its server, beside what was promised.

| figure | beside | goal |
|---|---|---|
| first paint of the journey, in Chromium | 300 ms | at most 1 |
| polling of an open view: journey, queues, queue metrics | 2 % of a core | at most 1 |
| `/metrics`, 1,000 queues with 10 groups each | 100 ms | at most 1 |

One server with 1,000 queues, 10 groups each, and 100,000 parcels that wait. The first paint is the browser's own
`first-contentful-paint`, of a browser that was never there before; where there is no Chromium, that figure is left out.

Polling is measured without a browser: `POLLS` has the requests of each view and how often the page sends them (a test
holds them to its scripts), and they are sent over one connection, as a browser would. The server's processor time is
read from `/proc` before and after; what it uses in as long a time without a view is taken off.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from forebay.bench.broker.servers import ForebayServer
from forebay.bench.dispatch.loads import dispatching, fill_cold, flow
from forebay.bench.harness import Figure, Measure, at_most
from forebay.broker.messages import PopRequest
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.model.push_run import run_of_one
from forebay.testing.servers import ServerUnavailable, find_chromium, open_browser

GROUPS = 10
CLASSES = 10
AT_ONCE = 100
SCRAPES = 3
SCRAPE_SECONDS = 3.0
"""Figures of queues are kept for two seconds."""
PAINT_MS = 300
METRICS_MS = 100
CORE_PERCENT = 2
PAINT_SECONDS_MAX = 60.0
SETTLE_SECONDS_MAX = 120.0
SETTLED_SECONDS = 3.0
PERCENT_MIN = 0.01
"""A server that was busier without a view than with it shows as this."""

QUEUE_METRICS = "/api/v2/metrics/queues"
POLLS: dict[str, Sequence[tuple[str, float]]] = {
    "journey": (
        ("/api/v1/journey", 5),
        ("/api/v1/journey/history", 10),
        ("/api/v1/ledger?accounts=false", 10),
        ("/api/v1/journey/latency", 10),
    ),
    "queues": (("/api/v1/journey/queues?limit=100", 5),),
    "queue_metrics": (
        (f"{QUEUE_METRICS}/detailed", 5),
        (f"{QUEUE_METRICS}/running", 5),
        (f"{QUEUE_METRICS}/action-plugins", 5),
    ),
}
"""By view: what it asks for, and every how many seconds."""


@dataclass(frozen=True, slots=True)
class PagePlan:
    """How much is measured."""

    rounds: int = 5
    queues: int = 1_000
    parcels: int = 100_000
    polled_seconds: float = 20.0

    @classmethod
    def quick(cls, rounds: int = 1) -> PagePlan:
        """All of it, but small: for trying it out, and for the tests."""
        return cls(rounds, 50, 2_000, 2.0)


def suite(directory: Path, plan: PagePlan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure."""
    data = directory / "data"
    tell(f"making {plan.queues:,} queues with {GROUPS} groups each, and {plan.parcels:,} parcels")
    with asyncio.Runner() as runner:
        runner.run(_filled(data, plan))
    with ForebayServer(data=data) as server, closing(_Asking(server.url)) as asking:
        _settle(asking)
        yield from _paint(server.url, plan, tell)
        for view, polls in POLLS.items():
            name = view.replace("_", " ")
            tell(f"polling as the view {name} does, and not at all, for {plan.polled_seconds:g} s each")
            yield at_most(
                1,
                f"polling of an open view: {name}",
                "% of a core",
                _polling(server.pid, asking, polls, plan.polled_seconds),
                f"{CORE_PERCENT} % of a core",
                lambda: CORE_PERCENT,
                rounds=plan.rounds,
                note=f"{plan.queues:,} queues, {plan.parcels:,} parcels; more than the server uses without a view",
            )
        yield at_most(
            1,
            f"/metrics, {plan.queues:,} queues with {GROUPS} groups each",
            "ms",
            lambda: _scrape_ms(asking),
            f"{METRICS_MS} ms",
            lambda: METRICS_MS,
            rounds=plan.rounds,
            note=f"median of {SCRAPES}, each {SCRAPE_SECONDS:g} s after the last: nothing of it is kept so long",
        )


# what the server has


async def _filled(data: Path, plan: PagePlan) -> None:
    store = EmbeddedStore(data)
    await store.open(lambda queue, count: None)
    names = [f"queue-{number:04}" for number in range(plan.queues)]
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        await store.push([run_of_one(name, "p", b"{}", f"{name}.{number}") for name in some for number in range(2)])
        for group in range(GROUPS):
            await asyncio.gather(*(store.pop(PopRequest(name, group=f"g{group}", auto_ack=True)) for name in some))
    classes = [f"bench.Class{number}" for number in range(CLASSES)]
    async with dispatching(store, EmbeddedWarm(), DispatchLimits(in_memory_queue_size=1)) as dispatcher:
        for name in classes:
            await dispatcher.define(flow(name, name))
    for name in classes:
        await fill_cold(store, name, [name], plan.parcels // CLASSES)
    await store.close()


def _settle(asking: _Asking) -> None:
    """Wait until no more parcels go from cold to warm, as they do behind a start."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    last, since = b"", time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS and time.monotonic() < deadline:
        found = asking.body(f"{QUEUE_METRICS}/detailed").partition(b'"timestamp"')[0]
        if found != last:
            last, since = found, time.monotonic()
        time.sleep(0.5)


# first paint


def _paint(url: str, plan: PagePlan, tell: Callable[[str], None]) -> Iterator[Figure]:
    try:
        find_chromium()
    except ServerUnavailable as missing:
        tell(f"the first paint is left out: {missing}")
        return
    if importlib.util.find_spec("playwright") is None:
        tell("the first paint is left out: Playwright is not installed")
        return
    yield at_most(
        1,
        "first paint of the journey",
        "ms",
        lambda: first_paint_ms(url),
        f"{PAINT_MS} ms",
        lambda: PAINT_MS,
        rounds=plan.rounds,
        note="first-contentful-paint of a new browser on loopback",
    )


FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def first_paint_ms(url: str) -> float:
    """Of a browser that has nothing of the page yet."""
    with open_browser() as context:
        page = context.new_page()
        page.goto(url)
        deadline = time.monotonic() + PAINT_SECONDS_MAX
        while not (found := page.evaluate(FIRST_PAINT)) and time.monotonic() < deadline:
            page.wait_for_timeout(10)
        return float(found)


# polling


class _Asking:
    """Requests over one connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)

    def body(self, path: str) -> bytes:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {body[:200]!r}")
        return body

    def seconds(self, path: str) -> float:
        began = time.perf_counter()
        self.body(path)
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


def _polling(pid: int, asking: _Asking, polls: Sequence[tuple[str, float]], seconds: float) -> Measure:
    def measure() -> float:
        idle = _percent(pid, lambda: time.sleep(seconds))
        polled = _percent(pid, lambda: _poll(asking, polls, seconds))
        return max(polled - idle, PERCENT_MIN)

    return measure


def _poll(asking: _Asking, polls: Sequence[tuple[str, float]], seconds: float) -> None:
    """Sends what is due until the time is over, all of it at its beginning."""
    began = time.monotonic()
    due = dict.fromkeys(polls, began)
    while (now := time.monotonic()) < began + seconds:
        for poll in polls:
            if due[poll] <= now:
                asking.body(poll[0])
                due[poll] += poll[1]
        time.sleep(max(min(*due.values(), began + seconds) - time.monotonic(), 0))


def _scrape_ms(asking: _Asking) -> float:
    found = []
    for _ in range(SCRAPES):
        time.sleep(SCRAPE_SECONDS)
        found.append(1000 * asking.seconds("/metrics"))
    return statistics.median(found)


def _percent(pid: int, work: Callable[[], object]) -> float:
    """How much of a core the process uses while this is done."""
    began, before = time.monotonic(), _processor_seconds(pid)
    work()
    return 100 * (_processor_seconds(pid) - before) / (time.monotonic() - began)


def _processor_seconds(pid: int) -> float:
    # The program's name stands in parentheses, and may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
