"""Stages: rows that are on the disk and are no messages yet.

A stage is a file of its own, `stages/<id>.arrow`, and a row in the database. The file is written and synced first, by
the thread that received the rows; the row makes it a stage. A file without a row is no stage, and is removed when the
store opens. Its batches are cut as the records of the log will be, so that a commit writes them as they are.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from forebay.broker.arrow import outgoing, staged_rows
from forebay.broker.bulk import Content, Staged, StageFigures, StageName, StagesOf
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.clock import SECOND_US, Clock
from forebay.errors import DiskFull, StoreUnavailable
from forebay.filesystem import Filesystem, Sink, is_disk_full

RECORD_BYTES_MAX = 8 << 20
"""Of a record that a commit writes. Larger ones sync faster, smaller ones are popped faster."""
RECORD_ROWS_MAX = 1 << 15

logger = logging.getLogger(__name__)


class Stages:
    def __init__(self, directory: Path, database: Database, clock: Clock, filesystem: Filesystem) -> None:
        self._folder = directory / "stages"
        self._filesystem = filesystem
        self._database = database
        self._clock = clock
        self._doomed: list[str] = []
        self._expired = 0

    def _path(self, stage_id: str) -> Path:
        return self._folder / f"{stage_id}.arrow"

    def sweep(self) -> None:
        """When the store opens: have the folder, and no file in it that has no row."""
        self._filesystem.make_directory(self._folder)
        self._filesystem.sync_directory(self._folder.parent)
        known = {f"{stage_id}.arrow" for (stage_id,) in self._database.all(query("stages_list"))}
        for name in self._filesystem.list_directory(self._folder):
            if name not in known:
                self._filesystem.remove(self._folder / name)

    # --- in any thread ---

    def write(self, stage_id: str, batches: Sequence[pa.RecordBatch]) -> None:
        """The file, on the disk when this returns."""
        path = self._path(stage_id)
        pieces = outgoing.put_together(staged_rows.cut(batches, RECORD_BYTES_MAX), RECORD_BYTES_MAX, RECORD_ROWS_MAX)
        try:
            file = self._filesystem.open(path, create=True)
            try:
                staged_rows.write(pieces, Sink(file))
                file.sync()
            finally:
                file.close()
            self._filesystem.sync_directory(self._folder)
        except OSError as error:
            self.discard(stage_id)
            if is_disk_full(error):
                raise DiskFull(path, "writing a stage") from error
            raise StoreUnavailable(f"{path}: a stage cannot be written: {error.strerror or error}") from error

    def discard(self, stage_id: str) -> None:
        """The file of a stage that was not to be."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.remove(self._path(stage_id))

    # --- in the store's thread ---

    def add(self, queue: str, name: StageName, staged: Staged) -> Staged:
        self._database.do(
            query("stage_add"),
            (staged.stage_id, *name, queue, *staged.content, self._clock.now_us()),
        )
        return staged

    def staged(self, wanted: StagesOf) -> dict[str, tuple[str, Content]]:
        """Queue and content of each stage of the write."""
        rows = self._database.all(
            query("stages_find"),
            (wanted.producer, wanted.epoch, wanted.write),
        )
        return {stage_id: (queue, Content(*content)) for stage_id, queue, *content in rows}

    def read(self, stage_id: str) -> list[pa.RecordBatch]:
        path = self._path(stage_id)
        try:
            file = self._filesystem.open(path)
            try:
                return staged_rows.read(pa.py_buffer(file.read_at(file.size(), 0)))
            finally:
                file.close()
        except (OSError, pa.ArrowException) as error:
            # Not the cycle's failure: others in it have nothing to do with this file.
            raise StoreUnavailable(
                f"{path}: the stage cannot be read: {error}", remedy="Abort the epoch, and stage its rows again"
            ) from error

    def forget(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        """Take stages of the epoch out of the database; `remove_files` follows when that is committed."""
        gone = self._database.all(
            query("stages_forget"),
            (wanted.producer, wanted.epoch, all_writes, wanted.write, wanted.queue),
        )
        self._doomed += [stage_id for (stage_id,) in gone]
        return len(gone)

    def expire(self, stage_seconds: float, commit_seconds: float) -> int:
        now_us = self._clock.now_us()
        gone = self._database.all(query("stages_expire"), (now_us - round(stage_seconds * SECOND_US),))
        self._database.do(query("commits_expire"), (now_us - round(commit_seconds * SECOND_US),))
        self._doomed += [stage_id for (stage_id,) in gone]
        self._expired += len(gone)
        return len(gone)

    def figures(self) -> StageFigures:
        count, size = self._database.one(query("stages_count"))
        return StageFigures(count, size, self._expired)

    def remove_files(self) -> None:
        """Of stages that are gone from the database for good. What the disk does not let go, the next start removes."""
        doomed, self._doomed = self._doomed, []
        for stage_id in doomed:
            try:
                self.discard(stage_id)
            except OSError as error:
                logger.warning("a stage is not removed: %s", error, extra={"action": "store_stage_kept"})

    def spare_files(self) -> None:
        """The cycle was rolled back: the stages are still there."""
        self._doomed = []
