"""Memory for large bodies and answers: so much for all requests together, whatever each of them may have.

A body that does not arrive with its head takes room before it is read, as much as it announces, and gives it back when
its request is answered. Where there is none, the request waits its turn, and its connection is not read meanwhile: the
sender is slowed down, the server stays as large as it is. Turns are in the order of arrival, so that large bodies are
not starved by small ones. Who waits too long is told to come again. Bodies up to 1 MiB are counted and do not wait:
most pushes are of that size, and a few large bodies that come slowly must not hold them up. So are bodies that announce
nothing (chunks), when they are there: most of them are small, and to keep room for the largest would keep others out.

An answer cannot wait: its messages are claimed already. It is counted while its client is slow to take it, and the
less room is left, the less the next answers hold (`answer_bytes_max`).
"""

from __future__ import annotations

import asyncio
from collections import deque

from forebay.api.problems import Problem, unavailable
from forebay.broker.messages import ANSWER_BYTES_MAX

MEMORY_BYTES_MAX = 512 << 20
ANSWER_BYTES_MIN = 1 << 20
NO_WAIT_BYTES_MAX = 1 << 20
WAIT_SECONDS_MAX = 30.0
"""Less than most clients wait for an answer."""


class Memory:
    """In bytes. `used` may exceed `limit`, by answers and by what does not wait."""

    __slots__ = ("_waiting", "limit", "refused", "used")

    def __init__(self, limit: int = MEMORY_BYTES_MAX) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    async def take(self, size: int, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """Returns how much was taken: all there is, at the most, or nobody could ever have it."""
        size = min(size, self.limit)
        if size > NO_WAIT_BYTES_MAX and (self._waiting or self.used + size > self.limit):
            await self._wait(size, seconds_max)
        else:
            self.used += size
        return size

    def take_now(self, size: int) -> None:
        """Of what is there already."""
        self.used += size

    def give_back(self, size: int) -> None:
        """Less than nothing: take more, of what is there already."""
        self.used -= size
        self._admit()

    @property
    def answer_bytes_max(self) -> int:
        """How much the next answer should hold: half of what is left."""
        return min(ANSWER_BYTES_MAX, max((self.limit - self.used) // 2, ANSWER_BYTES_MIN))

    async def _wait(self, size: int, seconds_max: float) -> None:
        turn = size, asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds_max):
                await turn[1]
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
                self._admit()  # whoever stood behind it may fit
            else:
                self.give_back(size)  # its turn came at the same moment
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise _busy(self) from None
            raise

    def _admit(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.limit:
            size, turn = self._waiting.popleft()
            self.used += size
            if not turn.done():
                turn.set_result(None)


def _busy(memory: Memory) -> Problem:
    return unavailable(
        f"requests that are under way hold {memory.used} of {memory.limit} bytes for bodies and answers", "busy"
    )
