"""Heads of requests that came before. A client sends the same head again and again; it is parsed once.

Only the very same bytes count as the same head, and only where a request begins. So what llhttp said of them the first
time holds every time: nothing is parsed here, and nothing is accepted that llhttp has not accepted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HEADS_MAX = 4096
KEPT_BYTES_MAX = 2048
"""A head that is longer is parsed each time."""

_END = b"\r\n\r\n"
_UNSTEADY = frozenset((b"transfer-encoding", b"expect", b"upgrade"))
"""What may make more of a request than a head and so many bytes behind it."""
_NEW_EACH_TIME = frozenset((b"traceparent",))
"""Such a head comes once."""
_NOT_KEPT = _UNSTEADY | _NEW_EACH_TIME


class Head(NamedTuple):
    size: int
    method: str
    raw_path: bytes
    query_string: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body_bytes: int


class RequestHeadCache:
    """Of all connections of a server together."""

    def __init__(self, *, heads_max: int = HEADS_MAX) -> None:
        self._heads_max = heads_max
        self._heads: dict[bytes, Head] = {}

    def find(self, data: bytes) -> Head | None:
        """What the data begins with, if that came before."""
        end = data.find(_END, 0, KEPT_BYTES_MAX)
        return self._heads.get(data[: end + len(_END)]) if end > 0 else None

    def learn(
        self, data: bytes, method: str, raw_path: bytes, query_string: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Keep what llhttp has read from the head that the data begins with, if it is plain.

        The caller knows that it is the head of a request of HTTP/1.1 which keeps its connection.
        """
        text = data[: data.find(_END, 0, KEPT_BYTES_MAX) + len(_END)]
        length = dict(headers).get(b"content-length", b"0")
        is_plain = length.isdigit() and _NOT_KEPT.isdisjoint([name for name, _ in headers])
        if is_plain and _has_lines(text, 1 + len(headers)):
            if len(self._heads) >= self._heads_max:
                self._heads.clear()
            self._heads[text] = Head(len(text), method, raw_path, query_string, tuple(headers), int(length))


def _has_lines(text: bytes, number: int) -> bool:
    """Whether that is a head of so many lines, without any other end of a line that a program might see."""
    return text.endswith(_END) and text.count(b"\r\n") == text.count(b"\n") == text.count(b"\r") == number + 1
