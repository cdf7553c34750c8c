"""Fixtures of the Spark tests."""

from __future__ import annotations

import pytest

from fixtures.fix_spark import Queues, spark, spark_server
from forebay.testing.running_server import RunningServer

__all__ = ["spark", "spark_server"]


@pytest.fixture
def queues(spark_server: RunningServer) -> Queues:
    return Queues(spark_server)
