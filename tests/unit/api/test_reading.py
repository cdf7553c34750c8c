"""Bodies, queries and names: what is accepted, and how a fault is named."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.bodies import AckBody, PushBody, SeekBody, decoded, push_runs
from forebay.api.body_stream import BODY_BYTES_MAX, BodyStream
from forebay.api.exchange import ClientGone, Request, decompressed
from forebay.api.parameters import Whole, checked_name, time_us
from forebay.api.problems import Problem

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refusal(step: Callable[[], object]) -> int | None:
    """The status that it is refused with, or None."""
    try:
        step()
    except Problem as problem:
        return problem.status
    return None


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_payload_is_the_text_that_came(value: Any, indent: int | None, ascii_only: bool) -> None:
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    body = b'{"items":[{"queue":"q","payload": ' + text + b" }]}"
    (run,) = push_runs(decoded(PushBody, body).items)
    assert run.payloads.data == text


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    refused = (None, 400, 501)  # bodies that begin as Queen's binary ones do are answered as such
    assert refusal(lambda: decoded(PushBody, body)) in refused
    assert refusal(lambda: decoded(AckBody, body)) in refused
    assert refusal(lambda: decoded(SeekBody, body)) in refused


@given(st.dictionaries(st.sampled_from(["items", "queue", "payload", "partition"]), values))
def test_no_document_breaks_the_reader(document: dict[str, Any]) -> None:
    body = json.dumps({"items": [document]}).encode()
    assert refusal(lambda: push_runs(decoded(PushBody, body).items)) in (None, 400)


def test_message_without_an_id_gets_one_and_says_so() -> None:
    body = b'{"items":[{"queue":"q","payload":1},{"queue":"q","payload":1,"transactionId":"own"}]}'
    first, second = push_runs(decoded(PushBody, body).items)
    assert (first.is_minted, second.is_minted, list(second.transaction_ids)) == (True, False, ["own"])


@pytest.mark.parametrize("name", ["", "x" * 256, "\0", "a\0", "..", ".", "a/../b", "a/./b", "..\\x", "\ud800"])
def test_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(Problem) as told:
        checked_name(name, "queue")
    assert (told.value.status, told.value.field) == (400, "queue")


@pytest.mark.parametrize("name", ["x", "x" * 255, "a/b", "...", "a..b", ".hidden", "日本", " ", "\n"])
def test_odd_name_is_a_name(name: str) -> None:
    assert checked_name(name, "queue") == name


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1969-12-31T00:00:00Z", 0),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_time_is_read_exactly(text: str, us: int) -> None:
    assert time_us(text, "from") == us


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader_of_times_and_numbers(text: str) -> None:
    assert refusal(lambda: time_us(text, "from")) in (None, 400)
    assert refusal(lambda: Whole("n", 1, "", highest=9).parsed(text)) in (None, 400)


def body_of(*parts: bytes, headers: Mapping[bytes, bytes] | None = None, is_cut: bool = False) -> bytes:
    """What a handler reads of a body that arrives in these parts, while it waits."""

    async def read() -> bytes:
        request = Request("POST", b"/", headers=list((headers or {}).items()))
        request.body_bytes_max = 10
        reading = asyncio.create_task(request.body())
        for part in parts:
            await asyncio.sleep(0)
            request.stream.feed(part)
        if is_cut:
            request.stream.lose()
        else:
            request.stream.end()
        return await reading

    return asyncio.run(read())


def test_body_in_parts_is_put_together() -> None:
    assert body_of(b"123", b"", b"4567890") == b"1234567890"


@pytest.mark.parametrize("parts", [(b"12345678901",), (b"1234567890", b"1"), (b"1",) * 11])
def test_body_above_the_limit_is_refused_in_any_parts(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(Problem) as told:
        body_of(*parts)
    assert told.value.status == 413


def test_body_that_is_cut_off_is_nobodys() -> None:
    with pytest.raises(ClientGone):
        body_of(b"123", is_cut=True)


def test_decompressed_size_counts() -> None:
    assert decompressed(gzip.compress(b"1" * 10), 10) == b"1" * 10
    with pytest.raises(Problem) as told:
        body_of(gzip.compress(b"1" * 11), headers={b"content-encoding": b"gzip"})
    assert told.value.status == 413


@given(st.lists(st.binary(max_size=40_000), max_size=30))
def test_parts_of_any_size_are_the_body(parts: list[bytes]) -> None:
    request = Request("POST", b"/")
    for part in parts:
        request.stream.feed(part)
    request.stream.end()
    assert request.stream.whole(BODY_BYTES_MAX) == b"".join(parts)


def test_body_of_many_small_parts_takes_little_more_than_its_size() -> None:
    stream = BodyStream()
    for _ in range(100_000):
        stream.feed(b"ab")
    assert sum([sys.getsizeof(part) for part in stream._parts]) + sys.getsizeof(stream._parts) < 2 * stream.size
