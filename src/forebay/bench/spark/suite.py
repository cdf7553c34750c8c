"""The suite: what is measured, in which order, and where it may write."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

from forebay.bench.broker.servers import ForebayServer, servers_below
from forebay.bench.harness import Figure
from forebay.bench.spark import figures_live
from forebay.bench.spark.figures_batch import Batches
from forebay.bench.spark.plan import Plan
from forebay.spark.flow_runner import stop_session
from forebay.spark.session import spark_session


def suite(directory: Path, plan: Plan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure; `tell` hears of what takes long."""
    plan.check_room(directory)
    with servers_below(directory):
        yield from _batch_figures(directory, plan, tell)
        # Spark in this process is gone by now: the flow has the cores to itself.
        tell("starting `forebay up`, and waiting for its first result")
        yield from figures_live.figures(plan)


def _batch_figures(directory: Path, plan: Plan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    settings = {
        "spark.log.level": "ERROR",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    with ForebayServer() as server:
        spark = spark_session(config=settings, on_progress=tell)
        try:
            batches = Batches(spark, server.url, directory, plan)
            tell(f"filling a queue and parquet files with {plan.messages:,} messages")
            batches.prepare()
            yield from batches.figures()
        finally:
            stop_session(spark)
