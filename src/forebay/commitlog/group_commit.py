"""Group commit: appends that wait at the same time are written and synced together, and share one sync.

There is no thread of its own. Of the threads that append, one leads: it takes all that is waiting, commits it, hands
the lead to the first that arrived meanwhile, and wakes the others. A lone thread thus commits by itself, without a hop,
and sixty-four of them share a sync; the group grows by itself as the disk gets slower.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")


class _Ticket(Generic[W, R]):
    """One appender's work on its way through a group."""

    __slots__ = ("abandoned", "error", "gate", "promoted", "result", "settled", "size", "work")

    def __init__(self, work: W, size: int) -> None:
        self.work = work
        self.size = size
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
        ticket: _Ticket[W, R] = _Ticket(work, size)
        if not self._enter(ticket):
            self._wait(ticket)
        if not ticket.settled:
            self._lead()
        return ticket.outcome()

    def _commit_alone(self, work: W) -> R:
        """No thread leads, so none waits: no ticket is needed. Threads that come meanwhile get the lead behind us."""
        try:
            return self._commit([work])[0]
        finally:
            if self._hand_over():
                self._lead()

    def _enter(self, ticket: _Ticket[W, R]) -> bool:
        """Join the waiting; True when no thread leads, so that the caller has to."""
        with self._mutex:
            self._waiting.append(ticket)
            leads, self._led = not self._led, True
        return leads

    def _wait(self, ticket: _Ticket[W, R]) -> None:
        """Until the ticket is settled, or is to lead."""
        try:
            ticket.gate.acquire()
        except BaseException:
            # Interrupted (Ctrl-C). The next leader must not wait for this thread; if it was to lead, it still does.
            with self._mutex:
                ticket.abandoned = True
                is_to_lead = ticket.promoted and not ticket.settled
            if is_to_lead:
                ticket.gate.acquire(blocking=False)  # as it is when a wait ends: the leader opens every gate once
                self._lead()
            raise

    def _lead(self) -> None:
        """Commit group after group until another thread can lead or none waits."""
        while True:
            group = self._take()
            try:
                results = self._commit([ticket.work for ticket in group])
                for ticket, result in zip(group, results, strict=True):
                    ticket.result = result
            except BaseException as error:  # noqa: BLE001 -- it belongs to the threads that wait, not to the leader
                for ticket in group:
                    ticket.error = error
            following = self._hand_over()
            for ticket in group:
                ticket.settled = True
                ticket.gate.release()
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
        """Give the lead to the first that waits. True when its thread is gone, so that this one goes on."""
        with self._mutex:
            if not self._waiting:
                self._led = False
                return False
            following = self._waiting[0]
            if following.abandoned:
                return True
            following.promoted = True
            following.gate.release()
            return False
