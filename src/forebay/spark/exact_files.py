"""Files of a table that every reader sees exactly once, whatever is killed: each batch is published in whole files.

Spark's own file sink leaves the files of a batch that was killed in the folder, and tells the good ones in
`_spark_metadata`, which only Spark reads. Here a batch is written beside the table and moved into it:

    table/_forebay/<query>/12/           being written; a kill leaves it, and the next try removes it
    table/_forebay/<query>/12.ready/     written: from here on the batch's files are these and no others
    table/part-00000-….parquet           moved from there, one by one, with their partition folders
    table/_forebay/<query>/done          the number of the last batch that was moved whole

A batch that Spark repeats is passed over if `done` has it, moved on if it is ready, and else written again. A reader
sees a batch file by file while it is moved, which takes milliseconds; no file twice, and never half a file. Names that
begin with `_` are passed over by Spark, pandas, PyArrow and everything that reads folders as Hive does.

**Where it is not possible.** Moving has to be a rename, so the table has to be in a file system of the machine that
Spark's driver runs on, or mounted there. Elsewhere (`s3a://`, `hdfs://`, Spark Connect), and where a table has a
`_spark_metadata` already, Spark's own sink goes on writing it: read such a table with Spark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

from forebay.errors import InvariantBroken
from forebay.flows.definition import Table
from forebay.spark.masters import is_connect
from forebay.spark.sink import QUERY_ID

FOLDER = "_forebay"
FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml", "avro"})
SPARKS_OWN = "_spark_metadata"
_replace = os.replace
_remove = shutil.rmtree


def exact_root(spark: SparkSession, table: Table) -> Path | None:
    """The folder of a table that can be published this way; None if Spark's own sink has to write it."""
    if table.path is None or table.mode != "append" or table.format.lower() not in FORMATS or is_connect(spark):
        return None
    parts = urlsplit(table.path)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    root = Path(unquote(parts.path) if parts.scheme else table.path)
    return None if (root / SPARKS_OWN).exists() else root.absolute()


def batch_writer(root: Path, table: Table) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls."""

    def write_batch(frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise InvariantBroken("Spark did not tell the name of the query whose batch is to be written")

        def write(folder: Path) -> None:
            writer = frame.write.format(table.format).options(**table.options)
            if table.partition_by:
                writer = writer.partitionBy(*table.partition_by)
            writer.save(str(folder))

        publish(root, query, batch, write)

    return write_batch


def publish(root: Path, query: str, batch: int, write: Callable[[Path], None], *, is_last: bool = False) -> None:
    """Put a batch into the table, once. `write` makes a folder with the batch's files.

    `is_last`: there will be no further batch of the query, and nothing of it is kept.
    """
    place = root / FOLDER / query
    if _done(place) >= batch:
        return
    ready = place / f"{batch}.ready"
    if not ready.is_dir():
        being_written = place / str(batch)
        if being_written.exists():
            _remove(being_written)
        place.mkdir(parents=True, exist_ok=True)
        write(being_written)
        being_written.mkdir(exist_ok=True)
        _replace(being_written, ready)
    for file in _data_files(ready):
        target = root / file.relative_to(ready)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, target)
    if is_last:
        _remove(place)
        return
    new = place / "done.new"
    new.write_text(str(batch))
    _replace(new, place / "done")
    _remove(ready)


def _done(place: Path) -> int:
    try:
        return int((place / "done").read_text())
    except FileNotFoundError:
        return -1


def _data_files(ready: Path) -> Iterator[Path]:
    """Without what Spark writes for itself: markers and checksums."""
    return iter(sorted(file for file in ready.rglob("*") if file.is_file() and file.name[0] not in "._"))
