"""A value that does not fit its column is the fault of its record, and is never taken for something else."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay.spark.record_columns import Cells, as_nullable, column_of, python_values

TIME = pa.timestamp("us", tz="UTC")
POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])
TEXTS = pa.list_(pa.field("element", pa.string()))
LABELS = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("kind", "good", "bad", "why"),
    [
        (pa.int32(), 1, "1", "'1' does not fit column c (int32): got str"),
        (pa.int32(), 1, 2**31, "2147483648 does not fit"),
        (pa.int64(), 1, 1.5, "1.5 does not fit"),
        (pa.list_(pa.int64()), [1], [1.5], "got float"),
        (pa.int64(), 1, True, "got bool"),
        (pa.string(), "a", 1, "1 does not fit column c (string)"),
        (pa.string(), "a", b"\xff", "not a utf8 string"),
        (pa.string(), "a", "\ud800", "surrogates not allowed"),
        (pa.float64(), 1.0, "1.0", "does not fit"),
        (pa.bool_(), True, 1, "does not fit"),
        (pa.decimal128(4, 2), Decimal("1.25"), Decimal("12345"), "does not fit"),
        (TIME, datetime(2026, 1, 1, tzinfo=UTC), 5, "got int"),
        (TIME, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", "got str"),
        (pa.date32(), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), "got datetime"),
        (TEXTS, ["a"], "abc", "got str"),
        (TEXTS, ["a", None], [1], "does not fit"),
        (LABELS, {"a": "b"}, [("a", "b")], "got list"),
        (POINT, {"x": 1}, {"y": 1}, "null, and x is NOT NULL"),
        (POINT, {"x": 1}, {"x": 1, "z": 2}, "unknown fields z"),
        (pa.list_(POINT), [{"x": 1, "y": 2}], [{"x": None}], "null, and x is NOT NULL"),
    ],
)
def test_value_that_does_not_fit_is_named_and_the_others_are_kept(
    kind: pa.DataType, good: Any, bad: Any, why: str
) -> None:
    column, faults = column_of([good, bad, None, good], pa.field("c", kind))
    first, *_, last = python_values(column)
    assert first == last == (good | {"y": None} if kind == POINT else good)
    assert column.null_count == 2
    assert list(faults) == [1]
    assert why in faults[1]


def test_null_for_not_null_is_a_fault() -> None:
    _, faults = column_of([1, None], pa.field("n", pa.int64(), nullable=False))
    assert faults == {1: "None does not fit column n (int64): null, and n is NOT NULL"}


def test_long_value_is_shortened_in_its_cause() -> None:
    _, faults = column_of(["x" * 10_000], pa.field("n", pa.int64()))
    assert len(faults[0]) < 250


def test_columns_are_nullable_throughout_whatever_was_declared() -> None:
    column, _ = column_of([{"x": 1, "y": 2}], pa.field("p", POINT, nullable=False))
    assert column.type == as_nullable(POINT)
    assert all(field.nullable for field in column.type)


def test_maps_are_dictionaries_however_deep_they_are() -> None:
    deep = pa.struct([pa.field("m", pa.list_(LABELS))])
    values = [{"m": [{"a": "b"}, None]}, None, {"m": None}]
    assert python_values(pa.array(values, deep)) == values


def test_column_that_no_record_looks_at_is_not_converted() -> None:
    cells = Cells(pa.RecordBatch.from_pydict({"a": [1], "b": [2]}))
    assert "b" in cells
    assert cells["a"] == [1]
    assert list(cells._known) == ["a"]
    with pytest.raises(KeyError):
        cells["c"]
