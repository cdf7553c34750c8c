"""The suite: what is measured, in which order, and where it may write."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

from forebay.bench.broker.servers import ForebayServer, servers_below
from forebay.bench.flows import figures_burst, figures_delivery
from forebay.bench.flows.figures_throughput import Throughput
from forebay.bench.flows.plan import FlowsPlan
from forebay.bench.flows.working import working
from forebay.bench.harness import Figure
from forebay.bench.spark.up_process import UpProcess
from forebay.spark.flow_runner import stop_session
from forebay.spark.session import spark_session
from forebay.testing.servers.machine import free_port


def suite(directory: Path, plan: FlowsPlan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure; `tell` hears of what takes long."""
    plan.room.check_room(directory)
    with servers_below(directory):
        yield from _throughput(directory, plan, tell)
        # Spark in this process is gone by now: `forebay up` has the cores to itself.
        tell("starting `forebay up`, and waiting for its first delivery")
        port = free_port()
        with UpProcess(_settings(port, plan)) as up:
            yield from figures_delivery.figures(up, port, plan)
            tell("a burst")
            yield from figures_burst.figures(up, plan)


def _settings(port: int, plan: FlowsPlan) -> str:
    burst = figures_burst.FLOW.format(parcel_messages=plan.parcel_messages)
    return (
        figures_delivery.SETTINGS.format(port=port) + figures_burst.SETTINGS + f"flows:{figures_delivery.FLOW}{burst}"
    )


def _throughput(directory: Path, plan: FlowsPlan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    settings = {
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # as a worker has it
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    with ForebayServer() as server:
        spark = spark_session(config=settings, on_progress=tell)
        try:
            with working(spark, server.url) as lanes:
                throughput = Throughput(spark, server.url, directory, plan, lanes)
                tell(f"filling queues and parquet files with {plan.messages:,} messages")
                throughput.prepare()
                yield from throughput.figures()
        finally:
            stop_session(spark)
