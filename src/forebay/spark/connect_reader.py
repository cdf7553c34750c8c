"""Frames of a Connect session are snapshots too.

A classic session makes the source once, when a frame is loaded. A Connect session sends its options with every query,
and the server makes the source anew: the end of the queue would be another one each time. So `load` asks what a
snapshot would be now, by way of the Connect server, because the client need not reach the queue's servers, and puts the
answer into the options of the frame.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.readwriter import DataFrameReader
from pyspark.sql.connect.session import SparkSession

from forebay.spark.options import OptionValue
from forebay.spark.source import NOT_TAKEN_YET, ForebaySource

_SNAPSHOT = "snapshot"


class SnapshotReader(DataFrameReader):
    """`spark.read` of a session that knows `format("forebay")`."""

    def load(
        self,
        path: Any = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        schema: Any = None,
        **options: OptionValue,
    ) -> DataFrame:
        if format is not None:
            self.format(format)
        self.options(**options)
        given = {name.lower() for name in self._options}
        if (self._format or "").lower() != ForebaySource.name() or _SNAPSHOT in given:
            return super().load(path, schema=schema)
        asking = DataFrameReader(self._session_of_it).format(ForebaySource.name()).options(**self._options)
        comment = asking.option(_SNAPSHOT, NOT_TAKEN_YET).load().schema.fields[0].metadata["comment"]
        frame = DataFrameReader(self._session_of_it).format(ForebaySource.name()).options(**self._options)
        if schema is not None:
            frame = frame.schema(schema)
        return frame.option(_SNAPSHOT, comment).load(path)

    def __init__(self, client: SparkSession) -> None:
        super().__init__(client)
        self._session_of_it = client


class SnapshotSession(SparkSession):
    """A Connect session whose frames of queues are snapshots."""

    @property
    def read(self) -> SnapshotReader:
        return SnapshotReader(self)


def fix_snapshots(spark: Any) -> None:
    """From now on, the frames that the session loads from queues are snapshots."""
    if type(spark) is SparkSession:
        spark.__class__ = SnapshotSession
