"""The peer that one writes first: a Python data source that yields one tuple per message.

It fetches the same ranges from the same server as `format("forebay")`, in as many tasks. What differs is what it hands
to Spark, and so what Spark has to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from forebay.spark.option_table import BATCH_READ
from forebay.spark.options import read_options
from forebay.spark.positions import SeqRange
from forebay.spark.source import ForebaySource, QueueReader, RangePartition

NAME = "tuples"


class TupleSource(ForebaySource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> TupleReader:
        return TupleReader(read_options(self.options, BATCH_READ, self._defaults()), schema)


class TupleReader(QueueReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, RangePartition):
            for batch in self._queue().batches(SeqRange(partition.start, partition.end)):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
