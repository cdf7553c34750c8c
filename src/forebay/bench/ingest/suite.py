"""The suite: what is measured, in which order."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import psycopg

from forebay.bench.broker.servers import ForebayServer, new_database, postgres, servers_below
from forebay.bench.broker.systems.postgres_table import TABLE
from forebay.bench.harness import Figure
from forebay.bench.ingest import figures_outage, figures_qos0, figures_recovery
from forebay.bench.ingest.plan import Plan


def suite(directory: Path, plan: Plan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure; `tell` hears of what takes long."""
    with servers_below(directory), postgres(directory) as database:
        by_hand = new_database(database, "by_hand")
        with psycopg.connect(by_hand, autocommit=True) as connection:
            connection.execute(TABLE)
        with ForebayServer(store=new_database(database, "ours")) as server:
            yield from figures_qos0.figures(server, by_hand, plan)
            yield from figures_outage.figures(server, database, plan)
        tell(f"writing {plan.many_recovered:,} events for the recovery")
        yield from figures_recovery.figures(new_database(database, "recovered"), directory, plan)
