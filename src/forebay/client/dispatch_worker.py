"""A worker without Spark: leases parcels, calls a handler for each, and says what became of them.

    async def geocode(work: ParcelWork) -> None:
        async for message in work.messages():
            ...

    async with AsyncClient() as client:
        await DispatchWorker(client, {"geo.*": geocode}).run()

A handler is chosen by its parcel's action class: the pattern that is the class itself, else the first that fits. It
returns None when the parcel is complete, or a `ParcelOutcome` (`work.outcome(...)`); what it raises is the parcel's
error, with its traceback. A handler that is no coroutine function is called in a thread, and reads with `work.read()`.

Parcels of a lease are handled one after the other and completed together, so that what they stage becomes messages
with their completion or not at all: a handler that only stages is exactly once. Everything else is at least once: after
a lease has ended, or a worker was killed, its parcels come again. Give side effects the did as idempotency key.

While handlers run, heartbeats keep the lease. When the server says that it is lost, the rest of its parcels is left
alone, and nothing is completed: another worker has them. A server that cannot be reached says nothing about the lease:
heartbeat and completion are tried again until the time of the lease is over.

`stop` lets the parcels at hand be finished, and then ends `run`; cancelling `run` gives the parcels back at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from forebay.client.async_client import AsyncClient
from forebay.client.lease_keeper import RETRY_SECONDS, LeaseKeeper
from forebay.client.messages import Refused, Unreachable
from forebay.client.parcel_work import ParcelWork
from forebay.client.parcels import ActionRun, ParcelLease, ParcelOutcome
from forebay.model.internal_queues import PRODUCER

_log = logging.getLogger("forebay.client")

Handler = Callable[[ParcelWork], object]
"""Returns None or a `ParcelOutcome`, or an awaitable of one."""


class DispatchWorker:
    """Use it as `await DispatchWorker(client, {"geo.*": handler}).run()`; `stop()` ends it after the parcels at hand.

    `handlers`: by action class, or by a pattern of them. `name`: this worker's own; made from host and process if
    not given. `parcels`, `messages`: how much one lease may hold. `wait_seconds`: how long one request waits for
    parcels. `plugin`: what provides the handlers, such as `shop:1.2.0`. `same_step`: each lease has parcels of one
    flow, version and step only.
    """

    def __init__(
        self,
        client: AsyncClient,
        handlers: Mapping[str, Handler],
        *,
        name: str = "",
        parcels: int = 10,
        messages: int = 0,
        wait_seconds: float = 20.0,
        plugin: str = "",
        same_step: bool = False,
    ) -> None:
        if not handlers:
            raise ValueError("a worker needs at least one handler")
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.completed = 0
        """Parcels whose outcome the server took, since the worker began."""
        self._client = client
        self._handlers = dict(handlers)
        self._parcels = parcels
        self._messages = messages
        self._wait_seconds = wait_seconds
        self._plugin = plugin
        self._same_step = same_step
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Lease no more; `run` returns when the parcels at hand are completed. From the loop that `run` is on.

        Example: `loop.add_signal_handler(signal.SIGTERM, worker.stop)`
        """
        self._stopping.set()

    async def run(self, *, once: bool = False) -> None:
        """Until `stop`, or with `once` until there is nothing to lease. A server that is away is tried again.

        Raises `Refused` for a key that may not consume, and `ClientClosed` when the client is closed under it.

        Example: `await DispatchWorker(client, {"geo.*": geocode}).run()`
        """
        while not self._stopping.is_set():
            try:
                lease = await self._lease_or_stop(0.0 if once else self._wait_seconds)
            except Unreachable as error:
                _log.warning("no parcels, next try in %g s: %s", RETRY_SECONDS, error, extra={"action": "no_parcels"})
                await self._pause(RETRY_SECONDS)
                continue
            if lease is not None:
                await self._work_on(lease)
            elif once:
                return

    async def _lease_or_stop(self, wait_seconds: float) -> ParcelLease | None:
        """A request that waits for parcels is given up when the worker is stopped."""
        leasing = asyncio.create_task(
            self._client.lease(
                self.name,
                list(self._handlers),
                parcels=self._parcels,
                messages=self._messages,
                wait=wait_seconds,
                plugin=self._plugin,
                same_step=self._same_step,
            )
        )
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((leasing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if leasing.done():
                return leasing.result()
            return None
        finally:
            # The server notices that the request was given up, and gives back what it has leased for it.
            for task in (leasing, stopping):
                task.cancel()
            await asyncio.gather(leasing, stopping, return_exceptions=True)

    async def _work_on(self, lease: ParcelLease) -> None:
        keeper = LeaseKeeper(self._client, lease)
        beating = asyncio.create_task(keeper.run())
        try:
            outcomes, stages = await self._handle_all(lease, keeper)
            await self._complete(lease, outcomes, stages, keeper)
        except BaseException:
            await _give_back(self._client, lease)
            raise
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _handle_all(self, lease: ParcelLease, keeper: LeaseKeeper) -> tuple[list[ParcelOutcome], list[str]]:
        outcomes: list[ParcelOutcome] = []
        stages: list[str] = []
        for parcel in lease.parcels:
            if keeper.is_lost:
                break
            work = ParcelWork(self._client, lease, parcel, asyncio.get_running_loop())
            outcome = await self._handle(work)
            outcomes.append(outcome)
            if outcome.state != "ERROR":
                stages += work.stages
        return outcomes, stages

    async def _handle(self, work: ParcelWork) -> ParcelOutcome:
        started_at = _now()
        try:
            outcome = await self._called(work)
        except Exception as error:  # noqa: BLE001 -- whatever a handler raises is the parcel's error
            # The cause first: a long text is cut at its end.
            outcome = work.outcome("ERROR", error=f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        if outcome.actions:
            return outcome
        run = ActionRun(
            action=work.parcel.action,
            started_at=started_at,
            finished_at=_now(),
            rows_in=outcome.rows_in,
            rows_out=outcome.rows_out,
            filtered=outcome.filtered,
            bad=outcome.bad,
            error=outcome.error,
        )
        return msgspec.structs.replace(outcome, actions=[run])

    async def _called(self, work: ParcelWork) -> ParcelOutcome:
        handler = self._handler_for(work.parcel.action_class)
        if inspect.iscoroutinefunction(handler):
            found = await handler(work)
        else:
            found = await asyncio.to_thread(handler, work)
            if isinstance(found, Awaitable):
                found = await found
        if found is None:
            return work.outcome()
        if not isinstance(found, ParcelOutcome):
            raise TypeError(f"the handler returned {type(found).__name__}, not None or a ParcelOutcome")
        if work.missing and not found.missing and found.state != "ERROR":
            return msgspec.structs.replace(found, missing=work.missing)
        return found

    def _handler_for(self, action_class: str) -> Handler:
        if action_class in self._handlers:
            return self._handlers[action_class]
        return next(handler for pattern, handler in self._handlers.items() if fnmatchcase(action_class, pattern))

    async def _complete(
        self, lease: ParcelLease, outcomes: list[ParcelOutcome], stages: list[str], keeper: LeaseKeeper
    ) -> None:
        """Until the server has taken it, or the lease is lost."""
        of_stages: dict[str, Any] = {"stages": stages, "producer": PRODUCER, "epoch": lease.lease_id}
        while not keeper.is_lost:
            try:
                done = await self._client.complete(lease, outcomes, **(of_stages if stages else {}))
            except Refused as refused:
                _log.warning(
                    "lease %s is not completed: %s", lease.lease_id, refused, extra={"action": "lease_not_completed"}
                )
                return
            except Unreachable as error:
                _log.warning(
                    "lease %s cannot be completed now: %s",
                    lease.lease_id,
                    error,
                    extra={"action": "lease_not_completed"},
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.completed += done.parcels
            return

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


async def _give_back(client: AsyncClient, lease: ParcelLease) -> None:
    try:
        await asyncio.shield(asyncio.ensure_future(client.release(lease)))
    except Exception as error:  # noqa: BLE001 -- then the lease ends by itself
        _log.warning(
            "lease %s could not be given back: %s", lease.lease_id, error, extra={"action": "lease_not_given_back"}
        )


def _now() -> str:
    return datetime.now(UTC).isoformat()
