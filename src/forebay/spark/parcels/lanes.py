"""A worker's lanes: threads that lease parcels, run them on Spark, and say what became of them.

Each lane has one lease at a time, and jobs in a pool of their own, so that a slow chain holds up its lane and no other.
One more thread sends heartbeats for all of them; a lease that is lost ends its job at once.

Stopping: lanes lease no more, jobs at hand may end within `STOP_SECONDS_MAX`, the others are cancelled and their
parcels given back, which counts no attempt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from forebay.errors import ForebayError, Transient
from forebay.spark.options import Connection
from forebay.spark.parcels.job import Cancelled, LeaseJob
from forebay.spark.parcels.known_flows import KnownFlows
from forebay.spark.parcels.lease import ActionRun, Completion, DispatchCalls, Lease, LeaseLost, Outcome
from forebay.spark.server_calls import ServerRefused

LEASE_WAIT_SECONDS = 20.0
RETRY_SECONDS = 1.0
STOP_SECONDS_MAX = 10.0
BEAT_SECONDS = 0.5
"""How often the heartbeat thread looks which leases are due."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """What a worker takes at a time."""

    worker: str
    classes: Sequence[str]
    lanes: int = 4
    lease_parcels: int = 100
    lease_messages: int = 200_000


@dataclass(slots=True)
class _Active:
    """A lease that a lane works on."""

    lease: Lease
    job: LeaseJob | None
    beat_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class LeaseDone:
    """A lease that was completed."""

    flow: str
    step: int
    outcomes: Sequence[Outcome]
    seconds: float


class Lanes:
    """Use `start`, then look at `failure` now and then, then `stop`."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        options: LaneOptions,
        *,
        on_done: Callable[[LeaseDone], None] = lambda _: None,
        tell: Tell = lambda _: None,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._options = options
        self._on_done = on_done
        self._tell = tell
        self._calls = DispatchCalls(connection)
        self._known = KnownFlows(spark)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._active: dict[str, _Active] = {}
        self._is_away = False
        self.failure: BaseException | None = None
        """Why no lane can go on: Spark is gone, or there is a bug."""
        self._threads = [
            threading.Thread(target=self._lane, args=(number,), name=f"forebay-lane-{number}", daemon=True)
            for number in range(options.lanes)
        ]
        self._beats = threading.Thread(target=self._beat, name="forebay-heartbeats", daemon=True)

    def start(self) -> None:
        for thread in (*self._threads, self._beats):
            thread.start()

    def stop(self) -> None:
        """Lease no more, and let the jobs at hand end, by themselves or not."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._active and time.monotonic() < deadline:
            time.sleep(0.05)
        for active in self._at_hand():
            if active.job is not None:
                active.job.cancel()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._active and time.monotonic() < deadline:
            time.sleep(0.05)

    def _at_hand(self) -> list[_Active]:
        with self._lock:
            return list(self._active.values())

    # --- a lane ---

    def _lane(self, number: int) -> None:
        try:
            while not self._stopping.is_set():
                lease = self._leased()
                if lease is not None:
                    self._work(lease, f"lane-{number}")
        except BaseException as fault:  # noqa: BLE001 - the worker's own thread hears of it, and ends
            self.failure = self.failure or fault

    def _leased(self) -> Lease | None:
        options = self._options
        try:
            lease = self._calls.lease(
                options.worker,
                options.classes,
                parcels=options.lease_parcels,
                messages=options.lease_messages,
                wait_seconds=LEASE_WAIT_SECONDS,
            )
        except (Transient, ServerRefused) as fault:
            self._note_away(str(fault))
            self._stopping.wait(RETRY_SECONDS)
            return None
        self._note_away("")
        return lease

    def _work(self, lease: Lease, pool: str) -> None:
        now = time.monotonic()
        active = _Active(lease, None, now + lease.heartbeat_seconds, now + lease.lease_seconds)
        with self._lock:
            self._active[lease.lease_id] = active
        try:
            if self._stopping.is_set():
                self._give_back(lease)
            else:
                self._complete(lease, self._done(active, pool), now)
        except Cancelled:
            self._give_back(lease)
        finally:
            with self._lock:
                del self._active[lease.lease_id]

    def _done(self, active: _Active, pool: str) -> Completion:
        lease, began_at = active.lease, _now()
        try:
            known = self._known.chain(lease.spec, lease.first.step)
        except ForebayError as fault:
            run = ActionRun(action="compile", started_at=began_at, finished_at=_now(), error=str(fault))
            return Completion(
                [Outcome(did=one.did, state="ERROR", error=str(fault), actions=[run]) for one in lease.parcels]
            )
        active.job = LeaseJob(self._spark, lease, known.chain, known.row_schema, self._connection)
        return active.job.run(pool)

    def _complete(self, lease: Lease, completion: Completion, began: float) -> None:
        try:
            try:
                self._calls.complete(lease, completion)
            except ServerRefused as refused:
                # What was staged cannot become messages: that is the parcels' error, and they are not held up by it.
                text = f"the servers refuse what the job staged: {refused}"
                completion = Completion([Outcome(did=one.did, state="ERROR", error=text) for one in lease.parcels])
                self._calls.complete(lease, completion)
        except (LeaseLost, Transient) as fault:
            self._tell(f"{lease.first.flow}: not completed, its parcels come again: {fault}")
            return
        self._on_done(LeaseDone(lease.first.flow, lease.first.step, completion.outcomes, time.monotonic() - began))

    def _give_back(self, lease: Lease) -> None:
        try:
            self._calls.release(lease.lease_id)
        except ForebayError as fault:
            self._tell(f"{lease.first.flow}: lease {lease.lease_id} was not given back and ends by itself: {fault}")

    def _note_away(self, cause: str) -> None:
        with self._lock:
            was_away, self._is_away = self._is_away, bool(cause)
        if cause and not was_away:
            self._tell(f"forebay: no server gives parcels: {cause}")
        elif was_away and not cause:
            self._tell("forebay: a server gives parcels again")

    # --- heartbeats ---

    def _beat(self) -> None:
        while not self._stopping.wait(BEAT_SECONDS) or self._active:
            now = time.monotonic()
            for active in self._at_hand():
                if now >= active.beat_at:
                    self._prolong(active)

    def _prolong(self, active: _Active) -> None:
        lease, sent_at = active.lease, time.monotonic()
        try:
            is_held = self._calls.heartbeat(lease.lease_id)
        except (Transient, ServerRefused):
            # No server said that it is lost: tried again soon, until its time is over.
            is_held = sent_at < active.ends_at
            active.beat_at = sent_at + min(RETRY_SECONDS, lease.heartbeat_seconds / 4)
        else:
            active.beat_at = sent_at + lease.heartbeat_seconds
            active.ends_at = sent_at + lease.lease_seconds
        if not is_held and active.job is not None:
            self._tell(f"{lease.first.flow}: lease {lease.lease_id} is lost: its parcels go to another worker")
            try:
                active.job.cancel()
            except Py4JNetworkError as gone:
                self.failure = self.failure or gone


def _now() -> str:
    return datetime.now(UTC).isoformat()
