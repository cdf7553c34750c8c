"""The suite: what is measured, in which order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from forebay.bench.export.exporting import WORKERS, bare_batches_per_second, batches_per_second
from forebay.bench.export.served import (
    IN_FLIGHT_MIB,
    QUEUE_MIB,
    memory_under_load,
    messages_per_second,
    points_per_second,
)
from forebay.bench.export.sink import sink_process
from forebay.bench.harness import Figure, at_least, at_most, for_information

LATENCY_SECONDS = 0.05
SLOW_SECONDS = 1.0
SPLIT_BYTES = 256 << 10
POINTS_GOAL = 100_000.0
MESSAGES_GOAL = 50_000.0


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """How much is measured."""

    rounds: int = 5
    batches: int = 3000
    slow_batches: int = 800
    split_batches: int = 400
    requests: int = 500
    messages: int = 200_000
    flood: int = 3000
    """Requests, several times as many as the send queue may hold."""

    @classmethod
    def quick(cls, rounds: int = 1) -> ExportPlan:
        """All of it, but small: for trying it out, and for the tests."""
        return cls(rounds, 100, 40, 20, 20, 2000, 40)


def suite(directory: Path, plan: ExportPlan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch."""
    with sink_process() as sink:
        yield _beside_a_bare_loop(directory, plan, sink)
        yield _split(directory, plan, sink)
        with sink_process(LATENCY_SECONDS) as slow_sink:
            yield from _beside_the_formula(directory, plan, slow_sink)
        tell("starting servers for what goes through one")
        yield from _served(directory, plan, sink)
        with sink_process(SLOW_SECONDS) as slow_sink:
            yield _memory(directory, plan, slow_sink)


def _beside_a_bare_loop(directory: Path, plan: ExportPlan, sink: str) -> Figure:
    return at_least(
        0.6,
        "export of OTLP batches of 50 KiB",
        "batches/s",
        lambda: batches_per_second(sink, directory, plan.batches),
        "bare aiohttp loop, the same bytes",
        lambda: bare_batches_per_second(sink, plan.batches),
        rounds=plan.rounds,
        note=f"{WORKERS} under way on both sides, queue in memory, sink in a process of its own",
    )


def _beside_the_formula(directory: Path, plan: ExportPlan, sink: str) -> Iterator[Figure]:
    name = f"export to a sink that takes {LATENCY_SECONDS * 1000:.0f} ms"

    def ours() -> float:
        return batches_per_second(sink, directory, plan.slow_batches)

    yield at_least(
        0.95,
        name,
        "batches/s",
        ours,
        "workers / latency",
        lambda: WORKERS / LATENCY_SECONDS,
        rounds=plan.rounds,
        note=f"{WORKERS} workers",
    )
    yield for_information(
        name,
        "batches/s",
        ours,
        "bare aiohttp loop, the same sink",
        lambda: bare_batches_per_second(sink, plan.slow_batches),
        rounds=plan.rounds,
        note="what a busy machine adds to the sink's latency, both sides wait for",
    )


def _split(directory: Path, plan: ExportPlan, sink: str) -> Figure:
    def measured(*, is_split: bool) -> float:
        return batches_per_second(
            sink, directory, plan.split_batches, compression="gzip", is_split=is_split, size=SPLIT_BYTES
        )

    return at_least(
        1,
        "pipeline split, gzip of 256 KiB batches",
        "batches/s",
        lambda: measured(is_split=True),
        "without split",
        lambda: measured(is_split=False),
        rounds=plan.rounds,
        note="2 preparers, 8 sends under way; 8 workers",
    )


def _served(directory: Path, plan: ExportPlan, sink: str) -> Iterator[Figure]:
    numbers = iter(range(1 << 30))
    yield at_least(
        1,
        "OTLP/HTTP in, remote write out",
        "data points/s",
        lambda: points_per_second(directory, sink, f"points-{next(numbers)}", plan.requests),
        "goal",
        lambda: POINTS_GOAL,
        rounds=plan.rounds,
        note="one server; requests of 1,000 data points over 32 connections",
    )
    yield at_least(
        1,
        "a queue to an HTTP destination",
        "messages/s",
        lambda: messages_per_second(directory, sink, f"messages-{next(numbers)}", plan.messages),
        "goal",
        lambda: MESSAGES_GOAL,
        rounds=plan.rounds,
        note="batches of 500, 8 partitions, embedded store, 4 workers",
    )


def _memory(directory: Path, plan: ExportPlan, slow_sink: str) -> Figure:
    """What the server has at most, beside what it had while it was idle and what the settings allow besides."""
    numbers = iter(range(1 << 30))
    allowed: list[float] = []

    def ours() -> float:
        most, idle = memory_under_load(directory, slow_sink, f"memory-{next(numbers)}", plan.flood)
        allowed.append(idle + QUEUE_MIB + IN_FLIGHT_MIB)
        return most

    return at_most(
        1,
        "resident memory, OTLP in, remote write out to a slow sink",
        "MiB",
        ours,
        "idle and the limits of the settings",
        lambda: allowed[-1],
        rounds=plan.rounds,
        note=f"max_bytes {QUEUE_MIB} MiB, in_flight_size {IN_FLIGHT_MIB} MiB; a sink that takes {SLOW_SECONDS:g} s",
    )
