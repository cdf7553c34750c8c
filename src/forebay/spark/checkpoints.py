"""What Spark's checkpoint of a query says: which batch is under way, and which messages are in it.

Read with Spark, so that it may be wherever Spark can read; one on this machine is read without. `offsets/<batch>` is
written before a batch begins, one line per source behind two of Spark's own; `commits/<batch>` when it is over;
`metadata` has the query's id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

_LINES_BEFORE_OFFSETS = 2
METADATA = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    query: str
    """The query's id."""
    batch: int
    """The batch that was begun last."""
    start: int | None
    """Its first seq; None for the first batch, whose start Spark does not write down."""
    end: int
    """The seq behind its last one."""
    is_over: bool

    @property
    def done(self) -> int:
        """Everything below this seq is done with."""
        return self.end if self.is_over else self.start or 0


def read_checkpoint(spark: SparkSession, path: str) -> Checkpoint | None:
    """None if no batch was begun yet."""
    offsets = _files(spark, f"{path}/offsets")
    if not offsets:
        return None
    batch = max(offsets)
    query = json.loads(_files(spark, f"{path}/metadata")[METADATA])["id"]
    start = _seqs(offsets[batch - 1]) if batch - 1 in offsets else None
    is_over = batch in _files(spark, f"{path}/commits")
    return Checkpoint(query, batch, min(start) if start else None, max(_seqs(offsets[batch])), is_over)


def _files(spark: SparkSession, path: str) -> dict[int, str]:
    """The texts of the files by their numbers; `metadata` has none of its own."""
    local = Path(path)
    if local.exists():
        files = [local] if local.is_file() else [file for file in local.iterdir() if not file.name.startswith(".")]
        return {_number(file.name): file.read_text() for file in files}
    try:
        frame = spark.read.format("text").option("wholetext", "true").load(path)
        rows = frame.select("value", f.col("_metadata.file_name").alias("name")).collect()
    except AnalysisException:
        return {}
    return {_number(row["name"]): row["value"] for row in rows}


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else METADATA


def _seqs(text: str) -> list[int]:
    """The offsets of a batch's sources: a plan that reads its queue in several branches has several."""
    return [json.loads(line)["seq"] for line in text.splitlines()[_LINES_BEFORE_OFFSETS:] if line.startswith("{")]
