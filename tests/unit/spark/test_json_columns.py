"""JSON payloads: one that is broken gives nulls and its text, and touches no other."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType

from forebay.errors import Permanent
from forebay.spark.json_columns import JsonColumns, refuse_unreadable

COLUMNS = JsonColumns(pa.schema([("a", pa.int32()), ("s", pa.string())]))
GOOD = st.builds(lambda a, s: {"a": a, "s": s}, st.none() | st.integers(-(2**31), 2**31 - 1), st.none() | st.text())
# Pieces that are broken alone and might be whole together, or that look like what wraps them.
BAD = st.sampled_from(
    [b"", b" ", b"\n", b"{", b"}", b'{"a":', b"1}", b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b"[]", b"7", b'"x"',
     b"\xff", b'{"s":"\xff"}', b'{"a":"x"}', b'{"a":1},"0":0}\n{"payload":{"a":2}', b'},{"a":1',
     b'{"a":3000000000}', b"nul", b'{"a":1},"x":2', b'{"a":1} ,\n"x":{}', b'{"a":1},"payload":{"a":2}', b'null,"x":1']
)  # fmt: skip


def parsed(payloads: list[bytes]) -> list[tuple[object, ...]]:
    columns = COLUMNS(pa.array(payloads, pa.binary()))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@given(st.lists(GOOD | BAD, max_size=12), st.booleans())
def test_every_row_is_its_own_payload(given: list[dict[str, object] | bytes], is_spread: bool) -> None:
    indent = 1 if is_spread else None
    payloads = [one if isinstance(one, bytes) else json.dumps(one, indent=indent).encode() for one in given]
    assert parsed(payloads) == [
        (None, None, one.decode(errors="replace")) if isinstance(one, bytes) else (one["a"], one["s"], None)
        for one in given
    ]


def test_objects_within_objects_are_no_reason_for_suspicion() -> None:
    assert parsed([b'{"o":{"p":1},"a":1}', b'{"n":null,"a":2}', b'{"s":"},\\"x\\":","a":3}']) == [
        (1, None, None),
        (2, None, None),
        (3, '},"x":', None),
    ]


def test_missing_fields_are_null_and_others_are_left_out() -> None:
    assert parsed([b"{}", b'{"b":[{"c":1}],"a":2}', b"null"]) == [(None,) * 3, (2, None, None), (None,) * 3]


def test_batch_keeps_exactly_the_types_of_the_schema() -> None:
    schema = pa.schema(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.list_(pa.struct([("x", pa.float32()), ("ok", pa.bool_())]))),
            ("b", pa.int8()),
        ]
    )
    payloads = [b'{"t":"2026-01-01T00:00:00+02:00","n":[{"x":1.5,"ok":true}],"b":3}', b"broken"]
    columns = JsonColumns(schema)(pa.array(payloads, pa.binary()))
    assert [column.type for column in columns] == [*schema.types, pa.string()]
    assert columns[1].to_pylist() == [[{"x": 1.5, "ok": True}], None]
    assert columns[0][0].value == 1767218400_000000


def test_types_that_are_not_read_are_refused_by_name() -> None:
    fields = [
        StructField("fine", ArrayType(StructType([StructField("x", IntegerType())]))),
        StructField("price", DecimalType(10, 2)),
        StructField("tags", MapType(StringType(), StringType())),
    ]
    with pytest.raises(Permanent, match=r"price decimal\(10,2\), tags map<string,string>; what is read"):
        refuse_unreadable(fields)


def test_times_keep_six_digits_of_as_many_as_nine() -> None:
    kind = pa.timestamp("us", "UTC")
    schema = pa.schema([("t", kind), ("o", pa.struct([("u", pa.list_(kind))]))])
    nine = [b'{"t":"2026-01-01T00:00:00.123456789Z"}', b'{"o":{"u":["1970-01-01T00:00:01.0000019Z"]}}'] * 2
    others = [b'{"t":"9999-12-31T00:00:00Z"}', b'{"t":"2026-01-01T00:00:00.5Z"}', b'{"t":"2026-13-01T00:00:00Z"}']
    columns = JsonColumns(schema)
    for payloads in (nine, [*nine, *others], others, nine):
        times, objects, corrupt = columns(pa.array(payloads, pa.binary()))
        assert [times.type, objects.type] == schema.types
        of = dict(zip(payloads, zip(times, objects, corrupt.to_pylist(), strict=True), strict=True))
        expected = {nine[0]: 1767225600_123456, others[0]: 253402214400_000000, others[1]: 1767225600_500000}
        assert {payload: of[payload][0].value for payload in expected if payload in of} == {
            payload: value for payload, value in expected.items() if payload in of
        }
        if nine[1] in of:
            assert of[nine[1]][1]["u"][0].value == 1_000001
        assert [payload for payload in of if of[payload][2] is not None] == [one for one in others[2:] if one in of]
