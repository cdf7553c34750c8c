"""Memory for bodies and answers: so much for all requests together, whatever each of them may have.

**Bodies.** One above 1 MiB that does not arrive with its head takes room before it is read, as much as it announces,
and gives it back when its request is answered. Where there is none, the request waits its turn, and its connection is
not read meanwhile: the sender is slowed down, the server stays as large as it is. Turns are in the order of arrival, so
that large bodies are not starved by small ones. A request that waits too long is told to come again. Smaller bodies,
and those that announce no length (chunks), are counted as their bytes arrive and do not wait: most pushes are of that
size, and a few large bodies that come slowly must not hold them up. A quarter more than the limit is kept for them;
when that is full as well, they are told to come again.

**Answers.** Messages are claimed when they are read, so room is taken before: as much as the last answers from the
queue make expect (`response_sizes`), 256 KiB at least. No more is read than that, but for the message that fills it:
one is always given. Where there is little left, the answer holds fewer messages; where even the quarter is full, or
messages are large, the request waits its turn like a body. What was answered is counted until the client has taken it.

**Slow clients.** While another request waits for room, a client that holds some and moves less than 256 KiB a second,
of its body or its answer, loses it: the body is refused (408), the connection with the answer is cut. Without others
that wait, slow is no fault.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from forebay.api.problems import Problem, unavailable
from forebay.broker.messages import ANSWER_BYTES_MAX

MEMORY_BYTES_MAX = 512 << 20
ANSWER_BYTES_MIN = 1 << 20
NO_WAIT_BYTES_MAX = 1 << 20
WAIT_SECONDS_MAX = 30.0
"""Less than most clients wait for an answer."""
SLOW_BYTES_PER_SECOND = 256 << 10
SLOW_SECONDS = 5.0
"""How long a client may hold room before its pace is looked at."""


class Holder(Protocol):
    """A body that arrives, or an answer that leaves, at a client's pace."""

    held_since: float
    """The event loop's time."""

    @property
    def moved_bytes(self) -> int:
        """Since then."""

    def lose_room(self) -> None:
        """It was too slow, and others wait."""


class Memory:
    """In bytes. `used` may exceed `limit`, by what does not wait."""

    __slots__ = ("_holders", "_waiting", "limit", "refused", "slow", "unasked", "used")

    def __init__(self, limit: int = MEMORY_BYTES_MAX) -> None:
        self.limit = limit
        self.used = 0
        self.unasked = 0
        """What has arrived before a handler asked for it: the beginnings of bodies, also of those that wait their turn.
        It keeps no body from its turn, or they might all keep each other."""
        self.refused = 0
        self.slow = 0
        """How many clients lost their room because they were slow."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._holders: set[Holder] = set()

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    @property
    def limit_without_waiting(self) -> int:
        return self.limit + self.limit // 4

    @property
    def is_full(self) -> bool:
        """Also for what does not wait."""
        return self.used + self.unasked > self.limit_without_waiting

    async def take(self, size: int, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """Returns how much was taken: all there is, at the most, or no request could ever have it."""
        size = min(size, self.limit)
        if size > NO_WAIT_BYTES_MAX and (self._waiting or self.used + size > self.limit):
            await self._wait(size, seconds_max)
        else:
            self.used += size
        return size

    def takes_at_once(self, size: int) -> bool:
        """Whether that was taken, because there is room and no request waits for it."""
        if self._waiting or self.used + size > self.limit:
            return False
        self.used += size
        return True

    async def take_for_answer(self, size: int, least: int = ANSWER_BYTES_MIN) -> int:
        """Returns how much was taken: `size`, or half of what is left, but not less than `least`: one message."""
        size = min(size, ANSWER_BYTES_MAX, self.limit)
        if self._waiting or self.used + size > self.limit:
            least = max(least, ANSWER_BYTES_MIN)
            size = min(size, max((self.limit - self.used) // 2, least))
            limit = self.limit_without_waiting if size <= NO_WAIT_BYTES_MAX else self.limit
            if self.used + size > limit:
                await self._wait(size, WAIT_SECONDS_MAX)
                return size
        self.used += size
        return size

    def take_now(self, size: int) -> None:
        """Of what is there already."""
        self.used += size

    def take_arrived(self, size: int) -> None:
        """Of what does not wait: `busy` where even the quarter for it is full."""
        if self.used + self.unasked + size > self.limit_without_waiting:
            self.refused += 1
            raise _busy(self)
        self.used += size

    def give_back(self, size: int) -> None:
        """Less than nothing: take more, of what is there already."""
        self.used -= size
        if self._waiting:
            self._admit()

    # slow clients

    def watch(self, holder: Holder) -> None:
        self._holders.add(holder)

    def unwatch(self, holder: Holder) -> None:
        self._holders.discard(holder)

    def take_from_slow(self, now: float) -> None:
        """To be called now and then."""
        if not self._waiting and self.used <= self.limit:
            return
        for holder in list(self._holders):
            seconds = now - holder.held_since
            if seconds >= SLOW_SECONDS and holder.moved_bytes < seconds * SLOW_BYTES_PER_SECOND:
                self.slow += 1
                self._holders.discard(holder)
                holder.lose_room()

    # turns

    async def _wait(self, size: int, seconds_max: float) -> None:
        turn = size, asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds_max):
                await turn[1]
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
                self._admit()  # one that stood behind it may fit
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
    held_bytes = memory.used + memory.unasked
    return unavailable(
        f"requests that are under way hold {held_bytes} of {memory.limit} bytes for bodies and answers", "busy"
    )
