"""Columns of a frame that become messages, and those that are refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.errors import Permanent
from forebay.spark.packing import packing
from forebay.spark.sink import _cut, gathered


def frame(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])  # type: ignore[arg-type]


def test_columns_of_a_message_pass_as_they_are() -> None:
    batch = pa.RecordBatch.from_pydict({"partition": ["p"], "payload": [b"\xff"]})
    packed = packing(frame(partition=StringType(), payload=BinaryType()), None)(batch)
    assert packed.to_pydict() == {"partition": ["p"], "payload": [b"\xff"]}


def test_large_types_become_plain_ones() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x"], pa.large_string())], names=["payload"])
    assert packing(frame(payload=StringType()), None)(batch).schema.field("payload").type == pa.string()


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"id": LongType()}, "payload is missing; id has no place in a message.*to_json"),
        ({"payload": IntegerType()}, "payload is int, not binary or string"),
        ({"payload": StringType(), "partition": LongType()}, "partition is bigint, not string"),
        (
            {"payload": BinaryType(), "seq": LongType(), "created_at": TimestampType()},
            r"seq, created_at have no place.*\.drop\('seq', 'created_at'\)",
        ),
    ],
)
def test_other_columns_are_refused_with_a_way_out(kinds: dict[str, object], told: str) -> None:
    with pytest.raises(Permanent, match=told):
        packing(frame(**kinds), None)


def test_json_packs_all_other_columns_without_nulls() -> None:
    schema = frame(partition=StringType(), id=LongType(), at=TimestampType(), raw=BinaryType(), gone=StringType())
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": ["p"],
            "id": [7],
            "at": [datetime(2026, 1, 1, tzinfo=UTC)],
            "raw": [b"\x00"],
            "gone": pa.array([None], pa.string()),
        }
    )
    packed = packing(schema, "json")(batch)
    assert packed.column("partition").to_pylist() == ["p"]
    (payload,) = packed.column("payload").to_pylist()
    assert json.loads(payload) == {"id": 7, "at": "2026-01-01T00:00:00.000000Z", "raw": "AA=="}


def test_packed_payload_is_always_json() -> None:
    rows = {"f": [float("nan"), float("inf")], "l": [[1.5, None], [float("nan")]], "d": [date(2026, 1, 1)] * 2}
    batch = pa.RecordBatch.from_pydict({**rows, "s": [{"x": None, "y": 1}] * 2})
    schema = frame(f=LongType(), l=LongType(), d=LongType(), s=LongType())
    payloads = [
        json.loads(text, parse_constant=pytest.fail) for text in packing(schema, "json")(batch)["payload"].to_pylist()
    ]
    assert payloads[0] == {"f": None, "l": [1.5, None], "d": "2026-01-01", "s": {"y": 1}}


def test_types_that_are_not_packed_are_refused() -> None:
    with pytest.raises(Permanent, match=r"price is decimal\(10,2\).*to_json"):
        packing(frame(price=DecimalType(10, 2)), "json")


def test_stages_keep_rows_in_order_and_within_the_limit() -> None:
    batches = [pa.RecordBatch.from_pydict({"payload": [bytes([n]) * 100 for n in range(k)]}) for k in (0, 1, 50, 3)]
    stages = list(gathered(iter(batches), 1000))
    assert all(sum(batch.nbytes for batch in stage) <= 1000 for stage in stages)
    rows = [row for stage in stages for batch in stage for row in batch["payload"].to_pylist()]
    assert rows == [row for batch in batches for row in batch["payload"].to_pylist()]


def test_row_above_the_limit_goes_alone() -> None:
    batch = pa.RecordBatch.from_pydict({"payload": [b"x", b"y" * 5000, b"z"]})
    assert [piece.num_rows for piece in _cut(batch, 1000)] == [1, 1, 1]
