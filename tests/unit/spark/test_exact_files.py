"""A batch is published once, at whichever step its process is killed."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from forebay.spark import exact_files
from forebay.spark.exact_files import FOLDER, publish

BATCHES = 3
ROWS = 4


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Everything that changes the file system; one of the steps is the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last = -1
        self.count = 0
        for name in ("_replace", "_remove"):
            real = getattr(exact_files, name)
            monkeypatch.setattr(exact_files, name, lambda *given, real=real: self.step(lambda: real(*given)))

    def step(self, change: Any) -> None:
        if self.count == self.last:
            raise Killed
        self.count += 1
        change()

    def writing(self, batch: int) -> Callable[[Path], None]:
        return lambda folder: self.write(folder, batch)

    def write(self, folder: Path, batch: int) -> None:
        """As Spark does it: folders of partitions, names of its own each time, and a marker at the end."""
        for half in (0, 1):
            rows = pa.table({"n": [batch * ROWS + n for n in range(ROWS) if n % 2 == half]})
            self.step(lambda half=half, rows=rows: _write(folder / f"half={half}", rows))
        self.step(lambda: (folder / "_SUCCESS").touch())


def _write(folder: Path, rows: pa.Table) -> None:
    folder.mkdir(parents=True)
    pa.parquet.write_table(rows, folder / f"part-{uuid.uuid4()}.parquet")
    (folder / ".part.crc").touch()


def seen(root: Path) -> list[int]:
    found = pa.dataset.dataset(root, format="parquet", partitioning="hive").to_table()
    return sorted(found["n"].to_pylist()) if "n" in found.column_names else []


def test_kill_at_any_step_leaves_each_row_once_when_the_batch_has_been_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    for last in itertools.count():
        root = tmp_path / str(last)
        steps.count, steps.last = 0, last
        was_killed = False
        for batch in range(BATCHES):
            try:
                publish(root, "q", batch, steps.writing(batch))
            except Killed:
                was_killed = True
                steps.last = -1
                assert len(seen(root)) == len(set(seen(root)))
                publish(root, "q", batch, steps.writing(batch))
            # Spark may not have noted that the batch is over.
            publish(root, "q", batch, steps.writing(batch))
            assert seen(root) == list(range((batch + 1) * ROWS))
        if not was_killed:
            break
    assert last >= BATCHES * 8
    assert sorted(path.name for path in (root / FOLDER / "q").iterdir()) == ["done"]


def test_new_query_begins_with_batches_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    publish(tmp_path, "one", 0, steps.writing(0))
    publish(tmp_path, "two", 0, steps.writing(1))
    assert seen(tmp_path) == list(range(2 * ROWS))


def test_batch_without_rows_is_done(tmp_path: Path) -> None:
    publish(tmp_path, "q", 0, lambda folder: None)
    publish(tmp_path, "q", 0, lambda folder: pytest.fail("it is done"))
