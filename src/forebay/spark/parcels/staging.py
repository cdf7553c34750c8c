"""The end of a chain, in the tasks: rows are staged for their queues under the lease, and counted.

The frame that comes here has one shape (`STAGED`), whatever the chain: each row is for one *target*, a queue, or is a
count. What a task tells the driver is small: the stages that it made, in order, and how many rows each parcel has in
each target. A task that Spark runs twice has staged twice; the driver hears of one of them, and names only its stages.

| target | what the row is |
|---|---|
| 0, 1, … | a message for that queue: `text` holds a payload that is JSON text, `bytes` any other |
| FILTERED | `note` says why `count` records were filtered |
| SKIPPED | `note` says why `count` records failed, which are left out |
| NOTE | `note` holds annotations of the parcel, as JSON |
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row

from forebay.model.internal_queues import PRODUCER
from forebay.spark.options import Connection
from forebay.spark.packing import OPTIONAL
from forebay.spark.queues import Queue
from forebay.spark.server_calls import ServerCalls
from forebay.spark.sink import gathered, staged

FILTERED, NOTE, SKIPPED = -1, -2, -3
STAGED = (
    "target INT, did STRING, text STRING, bytes BINARY, partition STRING, transaction_id STRING, trace_id STRING, "
    "headers STRING, note STRING, count BIGINT"
)
NAMES = [part.split()[0] for part in STAGED.split(", ")]
STAGE_BYTES_MAX = 16 * 1024 * 1024
REPORT = "kind STRING, target INT, did STRING, text STRING, count BIGINT"
_STAGE, _ROWS = "stage", "rows"


class Target(NamedTuple):
    """A queue that rows go to."""

    queue: str
    is_text: bool
    """Whether payloads are JSON text."""


@dataclass(slots=True)
class Staged:
    """What the tasks of a job have staged and counted."""

    stages: list[str] = field(default_factory=list)
    rows: Counter[tuple[int, str]] = field(default_factory=Counter)
    """By target and did; the did is empty where rows do not say whose they are."""
    filtered: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By did and reason."""
    notes: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    skipped: Counter[str] = field(default_factory=Counter)
    """By did."""

    def rows_of(self, target: int) -> int:
        return sum(count for (of, _), count in self.rows.items() if of == target)

    def plus(self, other: Staged) -> None:
        """Add what another job of the same lease has staged, behind what there is."""
        self.stages += other.stages
        self.rows += other.rows
        for did, reasons in other.filtered.items():
            self.filtered[did] += reasons
        for did, notes in other.notes.items():
            self.notes[did].update(notes)
        self.skipped += other.skipped


def stage(frame: DataFrame, targets: Sequence[Target], lease_id: str, connection: Connection) -> Staged:
    """Run the job. What fails in it is raised as Spark tells it."""
    return _heard(frame.mapInArrow(staging(targets, lease_id, connection), REPORT).collect())


def staging(
    targets: Sequence[Target], lease_id: str, connection: Connection
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stager = _Stager(targets, lease_id, connection)
        for batch in batches:
            stager.add(batch)
        yield stager.outcome_rows()

    return send


class _Stager:
    """One task's rows, gathered by target until there are enough for a stage."""

    def __init__(self, targets: Sequence[Target], lease_id: str, connection: Connection) -> None:
        self._targets = targets
        self._lease_id = lease_id
        self._calls = ServerCalls(connection)
        self._waiting: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._waiting_bytes: Counter[int] = Counter()
        self._outcome_rows: list[tuple[str, int, str, str, int]] = []
        self._rows: Counter[tuple[int, str]] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        # By position: Spark gives columns other names behind some of its operators.
        batch = pa.RecordBatch.from_arrays(batch.columns, names=NAMES)
        for target in pc.unique(batch.column("target")).to_pylist():
            mine = batch.filter(pc.equal(batch.column("target"), target))
            if target < 0:
                self._count(target, mine)
                continue
            for entry in mine.column("did").value_counts().to_pylist():
                self._rows[target, entry["values"] or ""] += entry["counts"]
            self._waiting[target].append(mine)
            self._waiting_bytes[target] += mine.nbytes
            if self._waiting_bytes[target] >= STAGE_BYTES_MAX:
                self._send(target)

    def outcome_rows(self) -> pa.RecordBatch:
        for target in list(self._waiting):
            self._send(target)
        counts = [(_ROWS, target, did, "", count) for (target, did), count in self._rows.items()]
        columns = zip(*[*self._outcome_rows, *counts], strict=True) if self._outcome_rows or counts else ((),) * 5
        kinds = (pa.string(), pa.int32(), pa.string(), pa.string(), pa.int64())
        arrays = [pa.array(list(values), kind) for values, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=["kind", "target", "did", "text", "count"])

    def _count(self, target: int, rows: pa.RecordBatch) -> None:
        for row in rows.select(["did", "note", "count"]).to_pylist():
            self._outcome_rows.append(("count", target, row["did"] or "", row["note"] or "", row["count"] or 0))

    def _send(self, target: int) -> None:
        rows, self._waiting[target], self._waiting_bytes[target] = self._waiting[target], [], 0
        if not rows:
            return
        queue, is_text = self._targets[target]
        names = [name for name in OPTIONAL if any(batch.column(name).null_count < batch.num_rows for batch in rows)]
        payload = "text" if is_text else "bytes"
        messages = [
            pa.RecordBatch.from_arrays(
                [batch.column(payload), *(batch.column(name) for name in names)], names=["payload", *names]
            )
            for batch in rows
        ]
        for piece in gathered(iter(messages), STAGE_BYTES_MAX):
            ids = staged(Queue(self._calls, queue), piece, (PRODUCER, self._lease_id, str(target), ""))
            self._outcome_rows += [(_STAGE, target, "", one, 0) for one in ids]


def _heard(rows: Sequence[Row]) -> Staged:
    """What all tasks reported. Spark gives it in the order of the tasks, so that stages are in the order of rows."""
    found = Staged()
    for kind, target, did, text, count in rows:
        if kind == _STAGE:
            found.stages.append(text)
        elif kind == _ROWS:
            found.rows[target, did] += count
        elif target == FILTERED:
            found.filtered[did][text] += count
        elif target == SKIPPED:
            found.skipped[did] += count
        else:
            found.notes[did].update(json.loads(text))
    return found
