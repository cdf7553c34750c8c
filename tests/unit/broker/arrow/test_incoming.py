"""Rows on their way in: what is JSON, which ids are made, how they are cut and kept."""

from __future__ import annotations

import codecs
import json
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.arrow_steps import ipc
from forebay.broker.arrow import staged_rows
from forebay.broker.arrow.incoming import ArrowRefused, accepted
from forebay.broker.arrow.staged_rows import STAGED_SCHEMA, new_stage_id
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED


def taken(body: bytes, *, payload_bytes_max: int = 1000, bytes_max: int = 1 << 20) -> pa.Table:
    batches = accepted(body, new_stage_id(), payload_bytes_max=payload_bytes_max, bytes_max=bytes_max)
    return pa.Table.from_batches(batches, STAGED_SCHEMA)


def is_json(payload: bytes) -> bool:
    """By Python's own parser. Half a surrogate pair is no text, so no consumer could be sure to read it."""
    try:
        json.dumps(json.loads(payload.decode(), parse_constant=lambda name: 1 / 0), ensure_ascii=False).encode()
    except (ValueError, ZeroDivisionError, RecursionError):
        return False
    return not payload.startswith(codecs.BOM_UTF8)


ODD_PIECES = st.sampled_from(
    [
        *(b"1", b"", b" ", b"\n", b"\r", b"\t", b"\x0b", b"\x0c", b"\xc2\xa0", b"\xe2\x80\xa8", b"\0", b"\xef\xbb\xbf"),
        *(
            b"[",
            b"]",
            b"[1",
            b"2]",
            b"1\n2",
            b"[\n]",
            b"{}",
            b'{"a":',
            b"1} 5",
            b"1 2",
            b",",
            b"1,2",
            b'"',
            b"null",
            b"nul",
        ),
        *(
            b'"\\ud800"',
            b'"\\udc00\\ud800"',
            b'"\\ud83d\\ude00"',
            b'"\xed\xa0\x80"',
            b'"\xff"',
            b"\xff",
            b'"\\u0000"',
            b"NaN",
            b"01",
        ),
    ]
)
ODD_PAYLOADS = st.lists(ODD_PIECES, max_size=4).map(b"".join) | st.binary(max_size=5)


@given(st.lists(ODD_PAYLOADS, min_size=1, max_size=20))
@example([b"1 2", b""])
@example([b'{"a":', b"1} 5"])
@example([b"1,2", b"[3", b"4]"])
@example([b"1", b"\xef\xbb\xbf1"])
def test_payload_is_binary_exactly_when_it_is_no_json(payloads: list[bytes]) -> None:
    flags = taken(ipc({"payload": pa.array(payloads, pa.binary())})).column("flags").to_pylist()
    assert [not flag & PAYLOAD_IS_BINARY for flag in flags] == [is_json(payload) for payload in payloads]


@given(st.lists(ODD_PAYLOADS, min_size=1, max_size=20))
def test_answer_of_any_json_payloads_is_readable_and_holds_each_of_them(payloads: list[bytes]) -> None:
    flags = taken(ipc({"payload": pa.array(payloads, pa.binary())})).column("flags").to_pylist()
    texts = [payload for payload, flag in zip(payloads, flags, strict=True) if not flag & PAYLOAD_IS_BINARY]
    assert json.loads(b"[" + b",".join(texts) + b"]") == [json.loads(text) for text in texts]


def test_ids_are_made_where_none_is_given() -> None:
    table = taken(ipc({"payload": ["1"] * 3, "transaction_id": ["a", None, "b"]}))
    first, second, third = table.column("transaction_id").to_pylist()
    assert (first, third) == ("a", "b")
    assert len(second) == 36
    minted = [bool(flag & TRANSACTION_ID_IS_MINTED) for flag in table.column("flags").to_pylist()]
    assert minted == [False, True, False]


def test_made_ids_are_all_different_over_many_pieces() -> None:
    ids = taken(ipc({"payload": ["1"] * 20_000})).column("transaction_id").to_pylist()
    assert len(set(ids)) == 20_000
    assert ids == sorted(ids)


def test_payload_over_its_limit_and_rows_over_theirs_are_too_large() -> None:
    with pytest.raises(ArrowRefused) as refused:
        taken(ipc({"payload": ["1" * 1001]}))
    assert (refused.value.column, refused.value.is_too_large) == ("payload", True)
    with pytest.raises(ArrowRefused) as refused:
        taken(ipc({"payload": ["1" * 900] * 100}), bytes_max=10_000)
    assert refused.value.is_too_large


def test_damaged_offsets_are_refused_and_read_nothing() -> None:
    body = bytearray(ipc({"payload": pa.array([b"abcd"] * 10, pa.binary())}))
    place = body.index(b"\x04\0\0\0\x08\0\0\0\x0c\0\0\0")
    body[place : place + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(ArrowRefused):
        taken(bytes(body))


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_refused(body: bytes) -> None:
    with pytest.raises(ArrowRefused):
        taken(body)


@example(152, 128)  # a column's name that is not UTF-8
@example(71, 11)  # a type that pyarrow cannot hold
@example(280, 13)  # offsets of which there are 13 bytes
@given(st.integers(0, 700), st.integers(0, 255))
def test_any_changed_byte_is_rows_or_refused(place: int, value: int) -> None:
    body = bytearray(ipc({"payload": ["1", "22"], "partition": ["a", "b"]}))
    body[place % len(body)] = value
    with suppress(ArrowRefused):
        taken(bytes(body)).validate(full=True)


def test_rows_are_cut_by_bytes_and_kept_as_they_are() -> None:
    table = taken(ipc({"payload": ["1" * 100] * 1000}))
    pieces = list(staged_rows.cut(table.to_batches(), 5000))
    assert all(piece.nbytes <= 5000 for piece in pieces)
    sink = pa.BufferOutputStream()
    staged_rows.write(pieces, sink)
    assert pa.Table.from_batches(staged_rows.read(sink.getvalue())).equals(table)
