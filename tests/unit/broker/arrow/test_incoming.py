"""Rows on their way in: what is JSON, which ids are made, how they are cut and kept."""

from __future__ import annotations

import codecs
import json
import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.arrow_steps import ipc
from forebay.broker.arrow import staged_rows
from forebay.broker.arrow.incoming import ArrowRefused, accepted, memory_bytes
from forebay.broker.arrow.staged_rows import STAGED_SCHEMA, new_stage_id
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED


def taken(body: bytes, *, payload_bytes_max: int = 1000, bytes_max: int = 1 << 22) -> pa.Table:
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


LONG = b"1" * 1000
REPEATED = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array([LONG])),
    "views": pa.Array.from_buffers(
        pa.binary_view(),
        10_000,
        [None, pa.py_buffer(struct.pack("<i4sii", 1000, LONG[:4], 0, 0) * 10_000), pa.py_buffer(LONG)],
    ),
}


@pytest.mark.parametrize("form", REPEATED)
def test_value_that_is_repeated_counts_as_often_as_it_is(form: str) -> None:
    body = ipc({"payload": REPEATED[form]})
    assert len(body) < 200_000
    usual = pa.default_memory_pool()
    measured = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(measured)
    try:
        with pytest.raises(ArrowRefused) as refused:
            taken(body, bytes_max=5_000_000)
    finally:
        pa.set_memory_pool(usual)
    assert refused.value.is_too_large
    assert (measured.max_memory() or 0) < 1_000_000
    assert memory_bytes(body, 5_000_000) == 5_000_000
    assert taken(body, bytes_max=11_000_000).num_rows == 10_000


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("form", ["plain", "dictionary"])
def test_compressed_rows_are_refused_by_what_they_become_before_they_are_decompressed(codec: str, form: str) -> None:
    payloads = pa.array([b"1" * 1_000_000] * 20, pa.binary())
    body = ipc(
        {"payload": payloads if form == "plain" else payloads.dictionary_encode()},
        options=pa.ipc.IpcWriteOptions(compression=codec),
    )
    assert len(body) < 100_000
    with pytest.raises(ArrowRefused) as refused:
        taken(body, payload_bytes_max=1_000_000, bytes_max=10_000_000 if form == "plain" else 900_000)
    assert refused.value.is_too_large
    assert taken(body, payload_bytes_max=1_000_000, bytes_max=30_000_000).num_rows == 20


def test_length_that_a_compressed_buffer_claims_is_refused_and_not_allocated() -> None:
    body = bytearray(ipc({"payload": [LONG] * 50}, options=pa.ipc.IpcWriteOptions(compression="zstd")))
    place = body.index((50 * len(LONG)).to_bytes(8, "little"))
    body[place : place + 8] = (1 << 60).to_bytes(8, "little")
    with pytest.raises(ArrowRefused) as refused:
        taken(bytes(body))
    assert refused.value.is_too_large


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_memory_is_reckoned_from_what_the_batches_say(codec: str | None) -> None:
    table = pa.table({"payload": [LONG] * 200, "partition": ["a"] * 200})
    needed = memory_bytes(ipc(table, options=pa.ipc.IpcWriteOptions(compression=codec)), 1 << 22)
    decoded = sum(
        batch.nbytes for batch in accepted(ipc(table), new_stage_id(), payload_bytes_max=1000, bytes_max=1 << 22)
    )
    assert decoded <= needed < 1.5 * decoded


def test_rows_without_values_count_for_what_they_become() -> None:
    body = ipc({"payload": pa.array([b""] * 100_000, pa.binary())})
    with pytest.raises(ArrowRefused) as refused:
        taken(body, bytes_max=2_000_000)
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
