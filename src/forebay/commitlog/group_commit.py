"""Group commit: everybody who is waiting is written and synced together, and pays for one sync.

There is no thread of its own. Of the appenders that wait, one leads: it takes all that is waiting, commits it, hands
the lead to the next one that arrived meanwhile, and wakes the others. A lone appender thus commits in its own thread,
without a hop, and sixty-four of them share a sync; the group grows by itself as the disk gets slower. Appenders on an
event loop are led from the loop's thread pool and resolved with one call per group.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")


class _Ticket(Generic[W, R]):
    """One appender's work on its way through a group."""

    __slots__ = ("abandoned", "error", "future", "gate", "promoted", "result", "settled", "size", "work")

    def __init__(self, work: W, size: int, future: asyncio.Future[R] | None) -> None:
        self.work = work
        self.size = size
        self.future = future
        self.gate = threading.Lock()
        self.gate.acquire()
        self.result: R | None = None
        self.error: BaseException | None = None
        self.settled = False
        self.promoted = False
        self.abandoned = False

    def outcome(self) -> R:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # set for every ticket that has no error

    def resolve(self) -> None:
        """On the event loop: pass the outcome on, unless nobody waits for it any more."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome())


class GroupCommit(Generic[W, R]):
    """`commit` gets the work of a group in order and returns one result each, or raises for all of them.

    Work joins a group only if `may_join` says so of it and the group's first.
    """

    def __init__(
        self,
        commit: Callable[[list[W]], list[R]],
        *,
        group_bytes_max: int,
        may_join: Callable[[W, W], bool] = lambda first, other: True,
    ) -> None:
        self._commit = commit
        self._may_join = may_join
        self._group_bytes_max = group_bytes_max
        self._mutex = threading.Lock()
        self._waiting: deque[_Ticket[W, R]] = deque()
        self._led = False

    def submit(self, work: W, size: int) -> R:
        """Block until the work is committed."""
        with self._mutex:
            is_alone, self._led = not self._led, True
        if is_alone:
            return self._commit_alone(work)
        ticket: _Ticket[W, R] = _Ticket(work, size, None)
        if not self._enter(ticket):
            self._wait(ticket)
        if not ticket.settled:
            self._lead()
        return ticket.outcome()

    def _commit_alone(self, work: W) -> R:
        """Nobody leads, so nobody waits: no ticket is needed. Those who come meanwhile get the lead behind us."""
        try:
            return self._commit([work])[0]
        finally:
            if self._hand_over():
                self._lead()

    async def submit_async(self, work: W, size: int) -> R:
        """Await the commit. A cancelled wait does not take the work back."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if self._enter(_Ticket(work, size, future)):
            try:
                loop.run_in_executor(None, self._lead)
            except RuntimeError:
                # The loop's pool takes nothing more, or no thread can be started. Everybody who waits, and who comes
                # later, waits for this one to lead: so it does, here.
                self._lead()
        return await future

    def _enter(self, ticket: _Ticket[W, R]) -> bool:
        """Join the waiting; True when nobody leads and the caller has to see to it."""
        with self._mutex:
            self._waiting.append(ticket)
            leads, self._led = not self._led, True
        return leads

    def _wait(self, ticket: _Ticket[W, R]) -> None:
        """Until the ticket is settled, or is to lead."""
        try:
            ticket.gate.acquire()
        except BaseException:
            # Interrupted (Ctrl-C). Whoever leads next must not wait for us; if that was to be us, we still do it.
            with self._mutex:
                ticket.abandoned = True
                is_to_lead = ticket.promoted and not ticket.settled
            if is_to_lead:
                self._lead()
            raise

    def _lead(self) -> None:
        """Commit group after group until somebody else can lead or nobody waits."""
        while True:
            group = self._take()
            try:
                results = self._commit([ticket.work for ticket in group])
                for ticket, result in zip(group, results, strict=True):
                    ticket.result = result
            except BaseException as error:  # noqa: BLE001 -- it belongs to those who wait, not to the one who leads
                for ticket in group:
                    ticket.error = error
            following = self._hand_over()
            self._wake(group)
            if not following:
                return

    def _take(self) -> list[_Ticket[W, R]]:
        group: list[_Ticket[W, R]] = []
        size = 0
        with self._mutex:
            while self._waiting:
                following = self._waiting[0]
                is_too_much = size + following.size > self._group_bytes_max
                if group and (is_too_much or not self._may_join(group[0].work, following.work)):
                    break
                group.append(self._waiting.popleft())
                size += following.size
        return group

    def _hand_over(self) -> bool:
        """Give the lead to the first that waits. True when it cannot lead by itself, so that we go on."""
        with self._mutex:
            if not self._waiting:
                self._led = False
                return False
            following = self._waiting[0]
            if following.future is not None or following.abandoned:
                return True
            following.promoted = True
            following.gate.release()
            return False

    def _wake(self, group: list[_Ticket[W, R]]) -> None:
        on_loops: dict[asyncio.AbstractEventLoop, list[_Ticket[W, R]]] = {}
        for ticket in group:
            ticket.settled = True
            if ticket.future is None:
                ticket.gate.release()
            else:
                on_loops.setdefault(ticket.future.get_loop(), []).append(ticket)
        for loop, tickets in on_loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[_Ticket[W, R]]) -> None:
    for ticket in tickets:
        ticket.resolve()
