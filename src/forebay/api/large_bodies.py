"""Bodies that are too large to be read in one go: beside the event loop, and a push item by item.

The parser holds Python's lock until it has read all that it is given, so a thread alone would not help the others:
200 ms of a body with 64 MiB of numbers. Item by item the lock is free in between. The parser says of a value with
something behind it where that begins, so nothing is read twice, and no item that is too large is read to its end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from forebay.api.bodies import (
    ITEMS_MAX,
    PAYLOAD_BYTES_MAX,
    Body,
    PushBody,
    PushedMessage,
    decoded,
    misread,
    refuse_binary,
    refuse_nul,
)
from forebay.api.exchange import Request
from forebay.api.problems import Problem, wrong

LARGE_BYTES_MIN = 2 << 20
"""Smaller bodies are read at once: a few milliseconds at the most."""
VALUE_BYTES_MAX = PAYLOAD_BYTES_MAX + (64 << 10)
"""Of an item with its names, and of any other member."""

_BEHIND = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")
_SPACE = re.compile(rb"[ \t\n\r]*")
_message_decoder = msgspec.json.Decoder(PushedMessage)
_text_decoder = msgspec.json.Decoder(str)
_any_decoder = msgspec.json.Decoder(msgspec.Raw)
Value = TypeVar("Value")


async def read_body(kind: type[Body], request: Request, *, is_optional: bool = False) -> Body:
    """The body, decoded. One that is large is decoded in a thread."""
    text = await request.text()
    if len(text) < LARGE_BYTES_MIN:
        return decoded(kind, text, is_optional=is_optional)
    return await asyncio.to_thread(decoded, kind, text, is_optional=is_optional)


def decoded_push(text: bytes | memoryview) -> PushBody:
    """The same as `decoded(PushBody, text)`, with Python's lock free in between."""
    return _Reader(text).push()


class _Reader:
    """Goes through a text from value to value; `place` is where the next one begins."""

    def __init__(self, text: bytes | memoryview) -> None:
        self._text = memoryview(text)
        around = text.obj if isinstance(text, memoryview) else text
        self._is_ascii = isinstance(around, bytes) and around.isascii()
        self._place = 0
        self._may_hold_nul = False

    def push(self) -> PushBody:
        refuse_binary(self._text)
        self._expect(b"{")
        items: list[PushedMessage] | None = None
        members: dict[str, msgspec.Raw] = {}
        if self._next() != b"}":
            while True:
                name = self._value(_text_decoder, "")
                self._expect(b":")
                if name == "items":
                    items = list(self._items())
                else:
                    members[name] = self._value(_any_decoder, name)
                if self._next() != b",":
                    break
                self._expect(b",")
        self._expect(b"}")
        if self._next():
            raise wrong(None, f"the body is not JSON: something stands behind it at byte {self._place}")
        if items is not None:
            members["items"] = msgspec.Raw(b"[]")
        found = decoded(PushBody, msgspec.json.encode(members))
        found.items = items or []
        # At the end, because of members of one name the last one counts.
        if self._may_hold_nul:
            refuse_nul(found.items, "items")
        return found

    def _items(self) -> Iterator[PushedMessage]:
        self._expect(b"[")
        if self._next() == b"]":
            self._expect(b"]")
            return
        for index in range(ITEMS_MAX):
            yield self._value(_message_decoder, f"items[{index}]")
            if self._next() != b",":
                self._expect(b"]")
                return
            self._expect(b",")
        raise wrong("items", f"expected `array` of length <= {ITEMS_MAX}")

    def _next(self) -> bytes:
        """The byte behind the blanks; nothing at the end."""
        found = _SPACE.match(self._text, self._place)
        self._place = found.end() if found else self._place
        return bytes(self._text[self._place : self._place + 1])

    def _expect(self, wanted: bytes) -> None:
        if self._next() != wanted:
            raise wrong(None, f"the body is not JSON: no {wanted.decode()!r} at byte {self._place}")
        self._place += 1

    def _value(self, decoder: msgspec.json.Decoder[Value], place: str) -> Value:
        """The value that begins here."""
        self._next()
        start = self._place
        rest = self._text[start : start + VALUE_BYTES_MAX]
        try:
            value, size = self._first(decoder, rest, place)
            own = rest[:size]
            if not self._is_ascii:
                bytes(own).decode()
        except UnicodeDecodeError as error:
            raise wrong(None, f"the body is not UTF-8 at byte {start + error.start}") from error
        self._place = start + size
        self._may_hold_nul = self._may_hold_nul or (isinstance(value, msgspec.Struct) and b"\\u0000" in bytes(own))
        return value

    def _first(self, decoder: msgspec.json.Decoder[Value], rest: memoryview, place: str) -> tuple[Value, int]:
        size = len(rest)
        try:
            _any_decoder.decode(rest)
        except msgspec.DecodeError as error:
            behind = _BEHIND.fullmatch(str(error))
            if behind is None:
                if len(rest) == VALUE_BYTES_MAX and "truncated" in str(error):
                    detail = f"has more than {PAYLOAD_BYTES_MAX} bytes"
                    field = f"{place}.payload" if place.endswith("]") else place or None
                    raise Problem(413, detail, code="too_large", field=field) from error
                raise wrong(None, f"the body is not JSON: {error}, from byte {self._place} on") from error
            size = int(behind[1]) - 1
        except RecursionError as error:
            raise wrong(None, "the JSON is nested too deeply") from error
        try:
            return decoder.decode(rest[:size]), size
        except msgspec.ValidationError as error:
            raise misread(error, place) from error
