"""Groups of pushes that ask before they write, on one connection, for one thread (`push_thread`).

1. BEGIN, lock the queues, find the partitions, find duplicates;
2. write, COMMIT.

A third trip comes before the second when a partition is new, or when the numbers of the partitions, which are
remembered from one push to the next, turn out to be others. What to ask and to write is decided in `pushing`. Queues
that do not exist are made in between, in a transaction of their own, and everything is asked again.

A transaction has `request_seconds_max`, with all its repetitions, and connecting takes `CONNECT_SECONDS_MAX` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from forebay.broker.messages import PushItem
from forebay.broker.stores.postgres.attempts import (
    FAILURES,
    Attempts,
    CommitUnknown,
    Unanswered,
    is_connection_doubtful,
)
from forebay.broker.stores.postgres.connections import DURABLE, PLANNED_ONCE
from forebay.broker.stores.postgres.known_push import TEXTS
from forebay.broker.stores.postgres.pushing import (
    DELETED_AGAIN,
    MAKE_QUEUES_MAX,
    PARTITIONS_KNOWN_MAX,
    Availability,
    Decided,
    MissingQueues,
    Outcome,
    PartitionNumbers,
    PushPlan,
    make_queues,
)
from forebay.broker.stores.postgres.queries import Statement
from forebay.broker.stores.postgres.transaction_stream import Connection, connected_for
from forebay.broker.stores.postgres.wire import BEGIN, COMMIT, Wire
from forebay.errors import StoreUnavailable

Requests = Sequence[Sequence[PushItem]]
_STATEMENT_SHARE = 0.4
"""Of `request_seconds_max`, for one statement: two of them are over before anybody stops waiting for an answer."""


class Settled(NamedTuple):
    """What became of each request of a group, and what is to be told of it."""

    outcomes: Sequence[Outcome | Exception]
    availability: Availability

    @property
    def is_written(self) -> bool:
        return bool(self.availability.counts)


class PushWriter:
    """`now_us` is asked once per attempt at a group."""

    def __init__(
        self, url: str, server_id: str, now_us: Callable[[], int | None], *, request_seconds_max: float
    ) -> None:
        self.server_id = server_id
        self.now_us = now_us
        self.known: PartitionNumbers = {}
        """This and `free` are written by the thread and looked at by others."""
        self.free: set[str] = set()
        """Queues that took everything when they were last looked at."""
        self.request_seconds_max = request_seconds_max
        # The database ends a statement that takes too long, and then it is known what became of it.
        limit = {"statement_timeout": f"{int(request_seconds_max * _STATEMENT_SHARE * 1000)}ms"}
        self._settings: Mapping[str, str] = {**DURABLE, **PLANNED_ONCE, **limit}
        self._url = url
        self._wire: Wire | None = None

    def connected_for_known(self) -> Connection:
        """A connection for pushes that need not ask."""
        return connected_for(self._url, self._settings, TEXTS, seconds_max=self.request_seconds_max)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def write(self, requests: Requests) -> Settled:
        """All of them in one transaction; one each, where one of them spoils it for the others."""
        try:
            outcomes, availability, _ = self._insist(requests)
        except StoreUnavailable as error:
            return _all_failed(requests, error)
        except Exception as error:  # noqa: BLE001 -- it belongs to whoever sent what cannot be stored
            return _all_failed(requests, error) if len(requests) == 1 else self._write_each(requests)
        return Settled(outcomes, availability)

    def _write_each(self, requests: Requests) -> Settled:
        """A transaction for each request."""
        outcomes: list[Outcome | Exception] = []
        counts: dict[str, int] = {}
        wanted_elsewhere: set[str] = set()
        for request in requests:
            try:
                [outcome], (told, wanted), _ = self._insist([request])
            except Exception as error:  # noqa: BLE001 -- as above
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            wanted_elsewhere |= wanted
            for queue, count in told.items():
                counts[queue] = counts.get(queue, 0) + count
        return Settled(outcomes, Availability(counts, wanted_elsewhere))

    def _insist(self, requests: Requests) -> Decided:
        """One transaction for all the requests; it is repeated where that is safe."""
        attempts = Attempts()
        missing: Sequence[PushItem] = ()
        times_missing = 0
        deadline = time.monotonic() + self.request_seconds_max
        while True:
            plan = PushPlan(self.now_us(), self.server_id, self.known, looks_for_all=not attempts.is_first)
            try:
                if missing:
                    self._connected().exchange([make_queues(missing, self.now_us())], deadline)
                    missing = ()
                decided = self._once(plan, requests, deadline)
            except MissingQueues as found:
                missing, times_missing = found.items, times_missing + 1
                if times_missing > MAKE_QUEUES_MAX:
                    raise StoreUnavailable(DELETED_AGAIN) from None
            except FAILURES as error:
                if is_connection_doubtful(error):
                    self.close()
                time.sleep(attempts.pause_after(error))
            else:
                self._note(plan)
                return decided

    def _note(self, plan: PushPlan) -> None:
        """What its commit has made true."""
        self.known.update(plan.made)
        if len(self.free) > PARTITIONS_KNOWN_MAX:
            self.free.clear()
        self.free |= plan.free
        self.free -= plan.guarded

    def _once(self, plan: PushPlan, requests: Requests, deadline: float) -> Decided:
        wire = self._connected()
        try:
            steps = plan.steps(requests)
            asked: list[Statement] = [BEGIN, *next(steps)]
            _, *answers = wire.exchange(asked, deadline)
            try:
                while True:
                    answers = wire.exchange(steps.send(answers), deadline)
            except StopIteration as end:
                decided = cast("Decided", end.value)
            _commit(wire, decided.writes, deadline)
        except BaseException:
            wire.roll_back()
            raise
        return decided

    def _connected(self) -> Wire:
        if self._wire is None or not self._wire.is_usable:
            self._wire = Wire(self._url, self._settings)
        return self._wire


def _all_failed(requests: Requests, error: Exception) -> Settled:
    return Settled([error] * len(requests), Availability({}, set()))


def _commit(wire: Wire, writes: list[Statement], deadline: float) -> None:
    """The last trip. COMMIT goes with it, so from its first byte on nobody knows what a silence means."""
    try:
        wire.exchange([*writes, COMMIT], deadline)
    except Unanswered as error:
        raise CommitUnknown from error
