"""Side rows: what leaves a chain of record actions beside its results. `record_frames` describes their columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from forebay.flows.record_action import MESSAGE_COLUMNS
from forebay.spark.message_marks import HIDDEN, InputColumns
from forebay.spark.outgoing import PAYLOAD
from forebay.spark.packing import json_value
from forebay.spark.record_attempts import Bad
from forebay.spark.record_columns import Cells

DID = "did"
SIDE = pa.struct(
    [
        ("kind", pa.string()),
        ("text", pa.string()),
        ("payload", pa.binary()),
        ("count", pa.int64()),
        ("action", pa.string()),
        ("traceback", pa.string()),
        ("input_seq", pa.int64()),
        ("split", pa.bool_()),
    ]
)
TEXT_CHARACTERS_MAX = 4_000


def notes_of(annotations: Mapping[str, str]) -> str:
    """Annotations as JSON; the same ones give the same text."""
    return json.dumps(dict(annotations), sort_keys=True, ensure_ascii=False)


class Origin(Protocol):
    """Which row of the piece a row of a step's input comes from."""

    def __getitem__(self, row: int, /) -> int: ...


class Sides:
    """Collects the side rows of one piece of a batch. `origin` is a row of that piece."""

    def __init__(self, piece: pa.RecordBatch, inputs: InputColumns) -> None:
        self._piece = piece
        self._inputs = inputs
        self._cells = Cells(piece)
        self._rows: list[dict[str, Any]] = []
        self._origins: list[int] = []
        self._is_single: list[bool] = []
        """Whether the row is about one record, and not a count of several that share their did only."""

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add_bad(self, origin: int, bad: Bad, action: str, *, is_split: bool = False) -> None:
        """`is_split`: it is one of several rows that the record became."""
        row = {"kind": "bad", "text": bad.cause, "payload": self._bytes(origin), "count": 1, "action": action}
        row |= {"traceback": bad.traceback or None, "input_seq": self._input(self._inputs.seq, origin)}
        self._add({**row, "split": is_split or None}, origin, is_single=True)

    def add_skipped(self, origin: int, cause: str, action: str) -> None:
        self._add({"kind": "skipped", "text": cause, "count": 1, "action": action}, origin, is_single=True)

    def add_counts(self, counts: Counter[tuple[int, str, str]], origins: Origin, action: str) -> None:
        """Add up what is counted by row, kind and text; records of different parcels stay apart."""
        dids = self._cells.get(DID)
        sums: Counter[tuple[Any, str, str]] = Counter()
        firsts: dict[Any, int] = {}
        for (row, kind, text), count in counts.items():
            origin = origins[row]
            did = dids[origin] if dids else None
            firsts.setdefault(did, origin)
            # Annotations are JSON, which is whole or nothing.
            sums[did, kind, text if kind == "note" else text[:TEXT_CHARACTERS_MAX]] += count
        for (did, kind, text), count in sums.items():
            row_of_count = {"kind": kind, "text": text, "count": count, "action": action}
            self._add(row_of_count, firsts[did], is_single=False)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The side rows under the columns of the chain's output."""
        *others, side = schema
        columns = []
        for field in others:
            if field.name in MESSAGE_COLUMNS and field.name in self._cells:
                columns.append(self._own(field))
            else:
                columns.append(pa.nulls(len(self._rows), field.type))
        columns.append(pa.array(self._rows, side.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _add(self, row: dict[str, Any], origin: int, *, is_single: bool) -> None:
        self._rows.append(row)
        self._origins.append(origin)
        self._is_single.append(is_single)

    def _own(self, field: pa.Field) -> pa.Array:
        chosen = [
            origin if is_single or field.name == DID else None
            for origin, is_single in zip(self._origins, self._is_single, strict=True)
        ]
        found = self._piece.column(field.name).take(pa.array(chosen, pa.int64()))
        try:
            return found.cast(field.type)
        except pa.ArrowException:
            # An action has given the column a type of its own, in which the original value has no form.
            return pa.nulls(len(chosen), field.type)

    def _input(self, column: str | None, origin: int) -> Any:
        return None if column is None else self._piece.column(column)[origin].as_py()

    def _bytes(self, origin: int) -> bytes:
        """The record as it came, where that is known; else the row: its payload, or without one its columns as JSON."""
        payload = self._input(self._inputs.payload, origin)
        if payload is None and PAYLOAD in self._cells:
            payload = self._cells[PAYLOAD][origin]
        if isinstance(payload, str):
            return payload.encode()
        if isinstance(payload, bytes):
            return payload
        not_of_the_row = (*MESSAGE_COLUMNS, *HIDDEN)
        record = {name: column[origin] for name, column in self._cells.items() if name not in not_of_the_row}
        return json.dumps(json_value(record), separators=(",", ":"), default=str).encode()
