"""Fixtures of the Spark tests. Those that share a session stay on one worker, the others may run beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.fix_spark import Queues, spark, spark_server
from forebay.testing.running_server import RunningServer

__all__ = ["spark", "spark_server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            shares_session = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shares_session else item.path.stem))


@pytest.fixture
def queues(spark_server: RunningServer) -> Queues:
    return Queues(spark_server)
