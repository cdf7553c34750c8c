"""Start-up with events in the failover file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from forebay.bench.broker.servers import ForebayServer
from forebay.bench.harness import Figure, at_most
from forebay.bench.ingest.outages import wait_until_drained
from forebay.bench.ingest.plan import Plan
from forebay.ingest.event import frames_of
from forebay.model.push_run import run_of_one

FEW_SECONDS_MAX, MANY_SECONDS_MAX = 1.0, 60.0
MEMORY_RATIO_MAX = 1.25
PAYLOAD = b'{"user": "u-%d", "page": "/products/4711", "ms": 123, "agent": "Mozilla/5.0 (X11; Linux x86_64)"}'
AT_ONCE = 10_000


def figures(store: str, directory: Path, plan: Plan) -> Iterator[Figure]:
    memory: dict[int, float] = {}
    for count, seconds_max, rounds in (
        (plan.recovered, FEW_SECONDS_MAX, plan.rounds),
        (plan.many_recovered, MANY_SECONDS_MAX, 1),
    ):
        yield at_most(
            1,
            f"start-up recovery of {count:,} events",
            "s",
            lambda count=count: _recovery_seconds(store, directory, count, memory),  # type: ignore[misc]
            f"{seconds_max:g} s",
            lambda seconds_max=seconds_max: seconds_max,  # type: ignore[misc]
            rounds=rounds,
            note="longer than a start with empty buffer files",
        )
    yield at_most(
        MEMORY_RATIO_MAX,
        f"most memory in a recovery of {plan.many_recovered:,} events",
        "MiB",
        lambda: memory[plan.many_recovered],
        f"with {plan.recovered:,} events",
        lambda: memory[plan.recovered],
        rounds=1,
    )


def _recovery_seconds(store: str, directory: Path, count: int, memory: dict[int, float]) -> float:
    data = directory / f"recovery-{uuid.uuid4().hex}"
    buffers = data / "buffers"
    buffers.mkdir(parents=True)
    empty = _start_seconds(store, data, memory, 0)
    _write(buffers / "failover.buf", count)
    return max(0.0, _start_seconds(store, data, memory, count) - empty)


def _write(path: Path, count: int) -> None:
    queue = f"recovered-{uuid.uuid4().hex}"
    with path.open("wb") as file:
        for start in range(0, count, AT_ONCE):
            items = [
                run_of_one(queue, f"p{n % 50}", PAYLOAD % n, f"{queue}-{n}")
                for n in range(start, min(count, start + AT_ONCE))
            ]
            now_us = time.time_ns() // 1000
            file.write(b"".join(frames_of(items, is_failover=True, now_us=now_us, cipher=None)))


def _start_seconds(store: str, data: Path, memory: dict[int, float], count: int) -> float:
    server = ForebayServer(store=store, data=data)
    began = time.monotonic()
    try:
        server.start()
        seconds = time.monotonic() - began
        wait_until_drained(server.url)
        status = Path(f"/proc/{server.pid}/status").read_text()
        memory[count] = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    finally:
        server.close()
    return seconds
