"""Pushes on a connection and a thread of their own.

Pushes that wait together are one transaction (`coalescer`), and one transaction is under way at a time, so one thread
with one connection does them all. The event loop hands over a group and gets its outcomes; no trip of the transaction
passes through it, and the server goes on reading requests meanwhile. Usually there are two trips:

1. BEGIN, lock the queues, find the partitions, find duplicates;
2. write, COMMIT.

A third comes before the second when a partition is new, or when the numbers of the partitions, which are remembered
from one push to the next to ask for duplicates at once, turn out to be others.

A transaction has `request_seconds_max`, with all its repetitions, and connecting takes `CONNECT_SECONDS_MAX` at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from forebay.broker.store import PushItem
from forebay.broker.stores.postgres.attempts import (
    FAILURES,
    Attempts,
    CommitUnknown,
    Unanswered,
    is_connection_doubtful,
)
from forebay.broker.stores.postgres.connections import DURABLE
from forebay.broker.stores.postgres.pushing import Availability, Decided, Outcome, PartitionNumbers, PushPlan
from forebay.broker.stores.postgres.queries import Statement
from forebay.broker.stores.postgres.wire import BEGIN, COMMIT, PLANNED_ONCE, Wire


class PushWriter:
    def __init__(self, url: str, server_id: str, *, request_seconds_max: float) -> None:
        self._url = url
        self._server_id = server_id
        self._request_seconds_max = request_seconds_max
        self._settings: Mapping[str, str] = {**DURABLE, **PLANNED_ONCE}
        self._thread = _one_thread()
        self._wire: Wire | None = None
        self._known: PartitionNumbers = {}

    async def store(
        self, requests: Sequence[Sequence[PushItem]], now_us: int | None
    ) -> tuple[list[Outcome], Availability]:
        """One transaction for all the requests; it is repeated where that is safe."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._insist, requests, now_us)

    async def close(self) -> None:
        """After what is under way. A store that is opened again starts the next thread with its first push."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()
        self._thread = _one_thread()

    def _insist(self, requests: Sequence[Sequence[PushItem]], now_us: int | None) -> tuple[list[Outcome], Availability]:
        attempts = Attempts()
        deadline = time.monotonic() + self._request_seconds_max
        while True:
            try:
                decided = self._once(
                    PushPlan(now_us, self._server_id, self._known, looks_for_all=not attempts.is_first),
                    requests,
                    deadline,
                )
            except FAILURES as error:
                if is_connection_doubtful(error):
                    self._drop()
                time.sleep(attempts.pause_after(error))
            else:
                return decided.outcomes, decided.availability

    def _once(self, plan: PushPlan, requests: Sequence[Sequence[PushItem]], deadline: float) -> Decided:
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

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="forebay-push")


def _commit(wire: Wire, writes: list[Statement], deadline: float) -> None:
    """The last trip. COMMIT goes with it, so from its first byte on nobody knows what a silence means."""
    try:
        wire.exchange([*writes, COMMIT], deadline)
    except Unanswered as error:
        raise CommitUnknown from error
