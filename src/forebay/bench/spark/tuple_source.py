"""The peer that one writes first: a Python data source that yields one tuple per message.

It fetches the same ranges from the same server as `format("forebay")`, in as many tasks. What differs is what it hands
to Spark, and so what Spark has to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from forebay.spark.option_table import BATCH_READ
from forebay.spark.options import read_options
from forebay.spark.positions import SeqRange
from forebay.spark.reader import RangePartition
from forebay.spark.source import ForebaySource, QueueReader

NAME = "tuples"


class TupleSource(ForebaySource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> TupleReader:
        options = read_options(self.options, BATCH_READ, self._defaults())
        return TupleReader(options, schema, self._snapshot, self._fault, self.cores)


class TupleReader(QueueReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, RangePartition):
            for batch in self._queue().batches(SeqRange(partition.start, partition.end)):
                yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    # A time with its zone takes long to make, and many messages have the same.
    encoded = column.dictionary_encode()
    times = encoded.dictionary.to_pylist()
    return [times[place] for place in encoded.indices.to_pylist()]
