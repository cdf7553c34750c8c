"""A head that came before is not parsed again. Nobody may notice: whatever llhttp makes of some bytes, so does this."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.api.body_stream import BODY_BYTES_MAX
from forebay.api.exchange import Request
from forebay.api.problems import Problem
from forebay.api.request_head_cache import KEPT_BYTES_MAX, RequestHeadCache
from forebay.api.request_parser import RequestParser

GET = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"
BARE = b"GET / HTTP/1.1\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
CLOSING = b"GET /last HTTP/1.1\r\nConnection: close\r\n\r\n"
OLD = b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
EXPECTING = b"POST /e HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
UPGRADING = b"GET /u HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
TRACED = b"POST /t HTTP/1.1\r\nContent-Length: 5\r\nTraceparent: 00-1-2-01\r\n\r\n"
PIECES = (
    TRACED + b"12345",
    GET,
    BARE,
    POST,
    POST + b"12345",
    CLOSING,
    OLD,
    CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    CHUNKED,
    EXPECTING,
    UPGRADING,
    b"12345",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"GET / HTTP/1.1\n\n",
    b"GET / HTTP/1.1\r\nA: b\n\r\n",
    b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    b"X",
    b"5\r\n12345\r\n0\r\n\r\n",
)


class NoHeads(RequestHeadCache):
    def find(self, data: bytes) -> None:
        return None


def told(request: Request) -> tuple[object, ...]:
    stream = request.stream
    body = stream.whole(BODY_BYTES_MAX) if stream.is_whole else stream.size
    headers = [tuple(header) for header in request.headers]
    is_lasting = request.is_kept_alive, request.is_version_1_0
    return request.method, request.raw_path, request.query_string, headers, body, is_lasting


def parsed(packets: list[bytes], heads: RequestHeadCache) -> tuple[list[tuple[object, ...]], bool, bool, bool]:
    """What requests a connection sees in those packets, and in what state it is after them."""
    line: deque[Request] = deque()
    parser = RequestParser(line, lambda _: None, heads)
    is_refused = False
    try:
        for packet in packets:
            parser.feed(packet)
    except Problem:
        is_refused = True
    return [told(request) for request in line], is_refused, parser.arriving is not None, parser.owes_continue


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(0, 400), max_size=6))
@example([b"\r\n\r\n", BARE], [4])
@example([b"\r\n\r\n", BARE, b"\r\n\r\n"], [])
@example([CLOSING, GET], [len(CLOSING)])
@example([GET, b"X", GET], [len(GET) + 1])
@example([POST, b"12345", GET], [len(POST) + 2])
def test_connection_that_knows_all_heads_sees_what_llhttp_sees(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    bounds = [0, *sorted(cuts), len(stream)]
    packets = [stream[start:stop] for start, stop in pairwise(bounds) if stop > start]
    heads = RequestHeadCache()
    expected = parsed(packets, NoHeads())
    for piece in pieces:
        parsed([piece], heads)
    assert parsed(packets, heads) == expected
    assert parsed(packets, heads) == expected


def test_plain_head_is_known_from_its_second_time_on() -> None:
    heads = RequestHeadCache()
    for head in (GET, BARE, POST):
        assert heads.find(head) is None
        parsed([head], heads)
        found = heads.find(head + b"more")
        assert found is not None
        assert found.size == len(head)


@pytest.mark.parametrize(
    "head", [CLOSING, OLD, CHUNKED, EXPECTING, UPGRADING, TRACED, b"\r\n" + GET, b"BREW / HTTP/1.1\r\n\r\n"]
)
def test_head_that_says_more_than_a_length_is_parsed_each_time(head: bytes) -> None:
    heads = RequestHeadCache()
    parsed([head], heads)
    assert heads.find(head) is None


def test_head_that_came_in_pieces_or_behind_another_is_not_learnt() -> None:
    heads = RequestHeadCache()
    parsed([POST[:20], POST[20:]], heads)
    parsed([CLOSING[:-2] + b"A: b\r\n\r\n" + POST], heads)
    assert heads.find(POST) is None


def test_long_heads_are_not_kept_and_of_many_no_more_than_the_limit() -> None:
    heads = RequestHeadCache(heads_max=3)
    long = b"GET /%b HTTP/1.1\r\n\r\n" % (b"x" * KEPT_BYTES_MAX)
    parsed([long], heads)
    assert heads.find(long) is None
    several = [b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(7)]
    for head in several:
        parsed([head], heads)
    kept = [head for head in several if heads.find(head) is not None]
    assert 0 < len(kept) <= 3
    assert several[-1] in kept
