"""The suite: what is measured, in which order, and where it may write."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

from forebay.bench.broker import figures_embedded, figures_postgres, figures_size
from forebay.bench.broker.plan import Plan
from forebay.bench.broker.servers import check_present, postgres, servers_below
from forebay.bench.broker.systems import check_clients
from forebay.bench.harness import Figure


def suite(directory: Path, plan: Plan, tell: Callable[[str], None]) -> Generator[Figure, None, None]:
    """All figures. `directory` is scratch on the disk to measure; `tell` hears of what takes long."""
    plan.check_room(directory)
    check_present(plan.without)
    check_clients(plan.without)
    with servers_below(directory), postgres(directory) as database:
        yield from figures_embedded.figures(directory, database, plan)
        yield from figures_postgres.figures(database, plan)
        yield from figures_size.partition_figures(directory, database, plan, tell)
        yield from figures_size.backlog_figures(directory, plan, tell)
