"""How large the next answer from a queue will be, judged by those before it: so much memory is taken to read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

from forebay.api.bodies import PAYLOAD_BYTES_MAX
from forebay.api.memory import Memory
from forebay.broker.messages import ANSWER_BYTES_MAX, PopRequest

KNOWN_MAX = 10_000
EXPECTED_BYTES_MIN = 256 << 10
"""Taken for any answer, so that a queue of small messages whose next ones are larger gives out several of them."""
FADING = 0.9
"""How fast large messages are forgotten when smaller ones come: a queue may hold both."""


class AnswerSizes:
    """In bytes per message, by what was popped from: a queue, or a namespace and task."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str | tuple[str, str], float] = {}

    def expected(self, wanted: PopRequest) -> tuple[int, int]:
        """The answer, and one message of it. As large as they may be where nothing is known yet."""
        each = self._known.get(wanted.queue or (wanted.namespace, wanted.task))
        if each is None:
            return ANSWER_BYTES_MAX, PAYLOAD_BYTES_MAX
        return min(max(int(each * wanted.batch), EXPECTED_BYTES_MIN), ANSWER_BYTES_MAX), int(each)

    def learn(self, wanted: PopRequest, messages: int, size: int) -> None:
        key = wanted.queue or (wanted.namespace, wanted.task)
        known, each = self._known.get(key), size / messages
        if known is None and len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = each if known is None else max(each, known * FADING)


def limited(wanted: PopRequest, taken_bytes: int) -> PopRequest:
    """No more is read than the room that was taken; the message that fills it is the last, and may go beyond it."""
    if taken_bytes == EXPECTED_BYTES_MIN:
        return _limited_to_least(wanted)
    return wanted._replace(bytes_max=min(taken_bytes, wanted.bytes_max))


@lru_cache(maxsize=1024)
def _limited_to_least(wanted: PopRequest) -> PopRequest:
    """Most pops are the same again and again, and of small messages."""
    return wanted._replace(bytes_max=min(EXPECTED_BYTES_MIN, wanted.bytes_max))


@asynccontextmanager
async def room_for_page(memory: Memory) -> AsyncIterator[int]:
    """Room for a page of messages: as much may be read."""
    taken_bytes = await memory.take_for_answer(ANSWER_BYTES_MAX)
    try:
        yield taken_bytes
    finally:
        memory.give_back(taken_bytes)
