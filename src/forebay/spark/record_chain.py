"""A chain of record actions over batches of Arrow, in Spark's Python processes.

Each action turns a batch into the next one's, column by column; records are looked at one by one only in `transform`.
What leaves the chain by the way are side rows: see `record_frames`, whose essay describes the columns.

A batch is taken in pieces of at most `PIECE_ROWS_MAX` rows and about `PIECE_BYTES_MAX` bytes, so that an action which
makes a thousand rows of one record holds the rows of a few records only. Results of a piece are in the order of its
records; its side rows follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from forebay.flows.record_action import MESSAGE_COLUMNS, Filter, Record, RecordContext, Result
from forebay.spark.arrow_action import ArrowAction
from forebay.spark.message_marks import HIDDEN, UNKNOWN, InputColumns
from forebay.spark.record_attempts import Attempts, Bad, RecordStep, Skipped
from forebay.spark.record_columns import Cells, column_of
from forebay.spark.record_sides import DID, Sides, notes_of

PIECE_ROWS_MAX = 10_000
PIECE_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A step with the columns that it gives."""

    step: RecordStep
    declared: pa.Schema
    """What `schema` of the action names, with its NOT NULL."""
    output: pa.Schema
    """The message's own columns that the input has, and the declared ones; all nullable."""


@dataclass(frozen=True, slots=True)
class RecordChain:
    """What `mapInArrow` calls, once per partition."""

    steps: Sequence[ChainStep]
    columns: Sequence[str]
    """The names of the input's columns. Spark's optimiser may give a batch others, as it does behind GROUP BY a map."""
    output: pa.Schema
    """The last step's columns and the side column."""
    flow: str
    is_stream: bool
    attempts: Mapping[str, int] = field(default_factory=dict)
    """How often each parcel was tried, by its did."""
    inputs: InputColumns = UNKNOWN
    """Where the input has what the step has read; hidden columns among them are for side rows alone."""
    piece_rows_max: int = PIECE_ROWS_MAX
    piece_bytes_max: int = PIECE_BYTES_MAX

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened: list[ChainStep] = []
        try:
            for one in self.steps:
                opened.append(one)
                one.step.action.open()
            runs = [_StepRun(one, self) for one in self.steps]
            for batch in batches:
                for piece in self._pieces(batch.rename_columns(self.columns)):
                    yield from self._run(runs, piece)
        finally:
            for one in reversed(opened):
                one.step.action.close()

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = batch.num_rows
        at_once = max(1, min(self.piece_rows_max, rows * self.piece_bytes_max // max(batch.nbytes, 1)))
        for start in range(0, rows, at_once):
            yield batch.slice(start, at_once)

    def _run(self, runs: Sequence[_StepRun], piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        sides = Sides(piece, self.inputs)
        rows = piece.drop_columns([name for name in piece.schema.names if name in HIDDEN])
        origins = Origins(range(piece.num_rows))
        for run in runs:
            rows, sources = run.stepped(rows, origins, sides)
            origins = origins.behind(sources)
        if rows.num_rows:
            columns = [*rows.columns, pa.nulls(rows.num_rows, self.output.field(len(self.output) - 1).type)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.output)
        if sides and not self.is_stream:
            yield sides.batch(self.output)


class Origins:
    """Which row of a piece each row of a step's input comes from."""

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = rows
        self._counts: Counter[int] | None = None

    def __getitem__(self, row: int) -> int:
        return self._rows[row]

    def behind(self, sources: Sequence[int]) -> Origins:
        """Of the rows behind a step, each of which comes from one of these rows."""
        return Origins([self._rows[source] for source in sources])

    def is_split(self, row: int) -> bool:
        """Whether there are other rows of the same origin."""
        if isinstance(self._rows, range):
            return False
        if self._counts is None:
            self._counts = Counter(self._rows)
        return self._counts[self._rows[row]] > 1


class _StepRun:
    """One step over the pieces of one partition."""

    def __init__(self, one: ChainStep, chain: RecordChain) -> None:
        self._action = one.step.action
        self._name = one.step.name
        self._declared = one.declared
        self._output = one.output
        self._chain = chain
        self._judge = Attempts(one.step, is_stream=chain.is_stream)
        self._contexts: dict[str | None, RecordContext] = {}

    def stepped(self, batch: pa.RecordBatch, origins: Origins, sides: Sides) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows behind this step, and the row of `batch` that each comes from."""
        if isinstance(self._action, ArrowAction):
            return self._converted(self._action, batch, origins, sides)
        found, filtered = self._transformed(batch, origins, sides)
        columns, faults = self._columns(batch, found)
        for source, cause in faults.items():
            sides.add_bad(origins[source], self._judge.bad(cause), self._name, is_split=origins.is_split(source))
        if faults:
            kept = [index for index, (source, _) in enumerate(found) if source not in faults]
            found = [found[index] for index in kept]
            indices = pa.array(kept, pa.int64())
            columns = [column.take(indices) for column in columns]
        for source, result in found:
            if result.annotations:
                filtered[source, "note", notes_of(result.annotations)] += 1
        sides.add_counts(filtered, origins, self._name)
        return pa.RecordBatch.from_arrays(columns, schema=self._output), [source for source, _ in found]

    def _transformed(
        self, batch: pa.RecordBatch, origins: Origins, sides: Sides
    ) -> tuple[list[tuple[int, Result]], Counter[tuple[int, str, str]]]:
        """The results with the rows that they come from, and how many records were filtered."""
        cells = Cells(batch)
        dids = cells.get(DID)
        found: list[tuple[int, Result]] = []
        counts: Counter[tuple[int, str, str]] = Counter()
        for row in range(batch.num_rows):
            judged = self._judge.judge(Record(cells, row), self._context(dids[row] if dids else None))
            if isinstance(judged, list):
                found += [(row, result) for result in judged]
            elif isinstance(judged, Filter):
                counts[row, "filtered", str(judged.reason)] += 1
            elif isinstance(judged, Bad):
                sides.add_bad(origins[row], judged, self._name, is_split=origins.is_split(row))
            elif isinstance(judged, Skipped):
                sides.add_skipped(origins[row], judged.cause, self._name)
        return found, counts

    def _context(self, did: str | None) -> RecordContext:
        known = self._contexts.get(did)
        if known is None:
            attempt = None if did is None else self._chain.attempts.get(did)
            known = self._contexts[did] = RecordContext(self._name, self._chain.flow, did, attempt)
        return known

    def _columns(
        self, batch: pa.RecordBatch, found: Sequence[tuple[int, Result]]
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """All columns behind the step, and the causes of the rows of `batch` whose results do not fit."""
        faults: dict[int, str] = {}
        self._refuse_unknown(found, faults)
        cells, sources = Cells(batch), pa.array([source for source, _ in found], pa.int64())
        columns = []
        for name in self._output.names:
            is_own = name in MESSAGE_COLUMNS and name in cells
            declared = self._declared.get_field_index(name) >= 0
            if is_own and not declared and not any(name in result.values for _, result in found):
                columns.append(carried(batch.column(name), sources, self._output.field(name).type))
                continue
            wanted = self._declared.field(name) if declared else self._output.field(name)
            values = [
                result.values[name] if name in result.values else cells[name][source] if is_own else None
                for source, result in found
            ]
            column, misfits = column_of(values, wanted)
            for index, cause in misfits.items():
                faults.setdefault(found[index][0], cause)
            columns.append(column)
        return columns, dict(sorted(faults.items()))

    def _refuse_unknown(self, found: Sequence[tuple[int, Result]], faults: dict[int, str]) -> None:
        known = set(self._output.names)
        for source, result in found:
            if not known.issuperset(result.values):
                unknown = ", ".join(str(name) for name in result.values if name not in known)
                faults.setdefault(source, f"a value for {unknown}, which the schema of {self._name!r} does not name")
            elif result.annotations and not all(isinstance(text, str) for text in result.annotations.values()):
                faults.setdefault(source, "annotations are text, and one of them is not")

    def _converted(
        self, action: ArrowAction, batch: pa.RecordBatch, origins: Origins, sides: Sides
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        found = action.convert(batch)
        for source, cause in found.bad.items():
            sides.add_bad(origins[source], self._judge.bad(cause), self._name, is_split=origins.is_split(source))
        sources = pa.array(found.sources, pa.int64())
        columns = []
        for wanted in self._output:
            if wanted.name in found.columns:
                columns.append(found.columns[wanted.name].cast(wanted.type))
            elif wanted.name in batch.schema.names and found.is_carried(wanted.name):
                columns.append(carried(batch.column(wanted.name), sources, wanted.type))
            else:
                columns.append(pa.nulls(len(sources), wanted.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._output), found.sources


def carried(column: pa.Array, sources: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the message for the rows that its records became."""
    return column.take(sources).cast(kind)
