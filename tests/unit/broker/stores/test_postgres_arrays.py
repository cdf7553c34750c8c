"""Columns as PostgreSQL reads them: psycopg's own binary arrays are the measure."""

from __future__ import annotations

import pytest
from psycopg.adapt import PyFormat, Transformer

from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Column, Texts, on_the_wire

LARGE = 1 << 40
"""psycopg picks the smallest type of number that fits all, and this one fits bigint only."""


@pytest.mark.parametrize(
    "column",
    [
        Bigints([LARGE]),
        Bigints([LARGE, LARGE, LARGE]),
        Bigints([LARGE, 1, -1]),
        Booleans([False, False]),
        Booleans([True, True]),
        Booleans([False, True, False]),
        Texts(["", ""]),
        Texts(["a", "", "ö€"]),
        Blobs([b"", b"", b""]),
        Blobs([b"\0\xff", b"", b"x" * 300]),
    ],
    ids=repr,
)
def test_column_has_the_bytes_of_a_list_of_the_same_values(column: Column) -> None:
    values = list(column)
    expected = Transformer().get_dumper(values, PyFormat.BINARY).dump(values)
    assert column.on_the_wire() == expected


@pytest.mark.parametrize("kind", [Bigints, Booleans, Texts, Blobs])
def test_empty_column_has_no_dimension_and_keeps_its_type(kind: type[Column]) -> None:
    assert kind().on_the_wire() == bytes(8) + kind.element_oid.to_bytes(4, "big")


def test_single_values_are_bigints_texts_and_null() -> None:
    assert on_the_wire(-2) == b"\xff" * 7 + b"\xfe"
    assert on_the_wire("ö") == b"\xc3\xb6"
    assert on_the_wire(None) is None


def test_value_without_a_known_form_is_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        on_the_wire(1.5)
