"""Bodies: every encoding is undone within the limit, and what is broken, too large or too deep is refused as told."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import TypeVar

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.ingest.receivers.decoding import BodyRefused, Telemetry, decoded, decompressed
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest
from unit.export.test_splitting import metrics

LIMIT = 10_000
Result = TypeVar("Result")


def raw_deflate(body: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(body) + machine.flush()


COMPRESS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "gzip in two streams": ("gzip", lambda body: gzip.compress(body[:5]) + gzip.compress(body[5:])),
    "zlib": ("zlib", zlib.compress),
    "deflate with header": ("deflate", zlib.compress),
    "deflate without header": ("deflate", raw_deflate),
    "zstd": ("zstd", lambda body: bytes(cramjam.zstd.compress(body))),
    "zstd in two frames": (
        "zstd",
        lambda body: bytes(cramjam.zstd.compress(body[:5])) + bytes(cramjam.zstd.compress(body[5:])),
    ),
    "snappy": ("snappy", lambda body: bytes(cramjam.snappy.compress_raw(body))),
    "snappy framed": ("snappy", lambda body: bytes(cramjam.snappy.compress(body))),
    "none": ("", bytes),
    "identity": ("identity", bytes),
}
CASES = pytest.mark.parametrize(("encoding", "compress"), COMPRESS.values(), ids=COMPRESS.keys())
COMPRESSED = pytest.mark.parametrize(
    ("encoding", "compress"),
    [case for case in COMPRESS.values() if case[1] is not bytes],
    ids=[name for name, case in COMPRESS.items() if case[1] is not bytes],
)


def status_of(action: Callable[[], object]) -> int:
    with pytest.raises(BodyRefused) as refused:
        action()
    return refused.value.status


def tried(action: Callable[[], Result]) -> Result | int:
    """What it returns, or the status of its refusal."""
    try:
        return action()
    except BodyRefused as refused:
        return refused.status


@CASES
@pytest.mark.parametrize("size", [6, LIMIT - 1, LIMIT])
def test_what_is_not_larger_than_the_limit_is_undone(
    size: int, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    body = bytes(number % 251 for number in range(size))
    assert decompressed(compress(body), encoding, LIMIT) == body


@CASES
@pytest.mark.parametrize("size", [LIMIT + 1, 200 * LIMIT])
def test_bomb_is_too_large(size: int, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert status_of(lambda: decompressed(compress(bytes(size)), encoding, LIMIT)) == 413


def test_bomb_of_many_empty_streams_ends() -> None:
    assert decompressed(gzip.compress(b"") * 20_000 + gzip.compress(b"x"), "gzip", LIMIT) == b"x"


@COMPRESSED
def test_truncated_body_is_refused_at_every_length(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    whole = bytes(range(256))
    body = compress(whole)
    for length in range(1, len(body)):
        found = tried(lambda: decompressed(body[:length], encoding, LIMIT))  # noqa: B023 - called at once
        if found == 400:
            continue
        # Formats of several pieces may end behind one of them; that is no fault that can be seen.
        assert isinstance(found, bytes)
        assert whole.startswith(found)
        assert len(found) < len(whole)
        assert encoding in ("gzip", "zstd", "snappy")


@COMPRESSED
def test_what_follows_the_end_is_refused(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert status_of(lambda: decompressed(compress(bytes(300)) + b"behind the end", encoding, LIMIT)) == 400


@given(st.sampled_from(["gzip", "deflate", "zlib", "zstd", "snappy"]), st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_happens(encoding: str, garbage: bytes) -> None:
    found = tried(lambda: decompressed(garbage, encoding, LIMIT))
    assert found in (400, 413) if isinstance(found, int) else len(found) <= LIMIT


def test_unknown_encoding_is_told_with_the_known_ones() -> None:
    with pytest.raises(BodyRefused, match="'br' is not known; known are gzip, zstd, snappy, deflate") as refused:
        decompressed(b"x", "br", LIMIT)
    assert refused.value.status == 415


def nested(levels: int) -> bytes:
    """An OTLP metrics request with a value in a list in a list in a list."""
    value = b"\x08\x01"  # any value, a string of no length
    for _ in range(levels):
        array = b"\x0a" + varint(len(value)) + value
        value = b"\x2a" + varint(len(array)) + array
    pair = b"\x0a\x01k\x12" + varint(len(value)) + value
    attributes = b"\x0a" + varint(len(pair)) + pair
    resource = b"\x0a" + varint(len(attributes)) + attributes
    return b"\x0a" + varint(len(resource)) + resource


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


@pytest.mark.parametrize("levels", [60, 10_000])
def test_protobuf_too_deep_is_refused(levels: int) -> None:
    assert status_of(lambda: decoded(Kind.METRICS, nested(levels), is_json=False)) == 400


def test_protobuf_not_too_deep_is_taken() -> None:
    assert decoded(Kind.METRICS, nested(20), is_json=False).items == 0


def test_truncated_protobuf_is_refused_unless_a_whole_field_ends_there() -> None:
    body = metrics(1, 1, 2, 3).SerializeToString()
    refused = 0
    for length in range(1, len(body)):
        try:
            decoded(Kind.METRICS, body[:length], is_json=False)
        except BodyRefused:
            refused += 1
    assert refused == len(body) - 1


def test_items_are_counted_and_the_body_is_carried_as_it_came() -> None:
    body = metrics(2, 2, 2, 3).SerializeToString()
    assert decoded(Kind.METRICS, body, is_json=False) == Telemetry(Kind.METRICS, body, 24)
    write = WriteRequest()
    write.timeseries.add().samples.add(value=1)
    assert decoded(Kind.REMOTE_WRITE, write.SerializeToString(), is_json=False).items == 1


@given(st.sampled_from([Kind.METRICS, Kind.TRACES, Kind.LOGS]), st.binary(max_size=100), st.booleans())
def test_garbage_is_no_request_and_no_crash(kind: Kind, garbage: bytes, is_json: bool) -> None:
    found = tried(lambda: decoded(kind, garbage, is_json=is_json))
    assert found == 400 or not isinstance(found, int)
