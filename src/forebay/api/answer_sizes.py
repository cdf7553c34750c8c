"""How large the next answer from a queue will be, judged by those before it: so much memory is taken to read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forebay.api.bodies import PAYLOAD_BYTES_MAX
from forebay.api.memory import ANSWER_BYTES_MIN, Memory
from forebay.broker.messages import ANSWER_BYTES_MAX, PopRequest

KNOWN_MAX = 10_000
FADING = 0.9
"""How fast large messages are forgotten when smaller ones come: a queue may hold both."""


class AnswerSizes:
    """In bytes per message, by what was popped from: a queue, or a namespace and task."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], float] = {}

    def expected(self, asked: PopRequest) -> tuple[int, int]:
        """The answer, and one message of it. As large as they may be where nothing is known yet."""
        each = self._known.get((asked.queue, asked.namespace, asked.task))
        if each is None:
            return ANSWER_BYTES_MAX, PAYLOAD_BYTES_MAX
        return min(int(each * asked.batch), ANSWER_BYTES_MAX), int(each)

    def learn(self, asked: PopRequest, messages: int, size: int) -> None:
        key = asked.queue, asked.namespace, asked.task
        known, each = self._known.get(key), size / messages
        if known is None and len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = each if known is None else max(each, known * FADING)


def readable_bytes(taken_bytes: int) -> int:
    """How much may be read into the room that was taken: messages vary, and one of usual size has to fit."""
    return min(max(2 * taken_bytes, ANSWER_BYTES_MIN), ANSWER_BYTES_MAX)


@asynccontextmanager
async def room_for_page(memory: Memory) -> AsyncIterator[int]:
    """Room for a page of messages: as much may be read."""
    taken_bytes = await memory.take_for_answer(ANSWER_BYTES_MAX)
    try:
        yield taken_bytes
    finally:
        memory.give_back(taken_bytes)
