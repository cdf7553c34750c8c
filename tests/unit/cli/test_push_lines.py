"""How lines are cut into requests, and what an item becomes before it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from forebay.cli.push_lines import Line, item, requests_of


def test_requests_end_by_count_and_by_bytes_and_keep_the_numbers_of_their_lines() -> None:
    lines = [b"1\n", b"\n", b"2\n", b"3\n", b"4444444\n", b"55\n", b"666666666666666\n", b"7"]
    found = [[line.number for line in request] for request in requests_of(lines, 3, bytes_max=10)]
    assert found == [[1, 3, 4], [5], [6], [7], [8]]


def test_full_request_does_not_wait_for_the_next_line() -> None:
    def slow() -> Iterator[bytes]:
        yield b"1\n"
        raise AssertionError("the next line was waited for")

    assert next(requests_of(slow(), 1)) == [Line(1, b"1\n")]


@pytest.mark.parametrize("member", ["", ', "transactionId": null', ', "transaction\\u0049d":  null '])
def test_item_without_an_id_gets_one_of_its_own_and_keeps_its_payload(member: str) -> None:
    line = f'{{"queue": "q", "payload": {{"n":  1.50}}{member}}}\n'.encode()
    first, second = (bytes(item(line, "here")) for _ in range(2))
    assert b'{"n":  1.50}' in first
    ids = [msgspec.json.decode(text)["transactionId"] for text in (first, second)]
    assert all(ids)
    assert ids[0] != ids[1]


def test_item_with_an_id_stays_as_it_is() -> None:
    line = b'{"queue": "q", "payload": 1, "transactionId":  "mine"}'
    assert bytes(item(line + b"\n", "here")) == line
