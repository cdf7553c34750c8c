"""Fixtures of the Spark tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from fixtures.fix_spark import Queues, spark, spark_server
from fixtures.parcel_flows import parcels, run, working
from forebay.testing.running_server import RunningServer

__all__ = ["parcels", "run", "spark", "spark_server", "working"]


@pytest.fixture
def queues(spark_server: RunningServer) -> Queues:
    return Queues(spark_server)


@pytest.fixture
def parcel_actions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Flows find the classes of `parcel_actions`, and so do Spark's Python processes, which do not look here."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    module = importlib.import_module("parcel_actions")
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
