"""Groups of pushes on one connection, for one thread.

A group whose partitions and queues are known (`known_push`) takes one step: BEGIN, lock the queues, number and write.
COMMIT follows when that is answered, and the next group goes right behind it, so that the database writes one group
while this thread makes the next one ready and hands out the answers of the last. Each COMMIT leaves when its own
group is known to be written, and never before: a connection that breaks sooner has done nothing, and that is repeated.

Any other group is alone, and asks before it writes (`pushing`):

1. BEGIN, lock the queues, find the partitions, find duplicates;
2. write, COMMIT.

A third trip comes before the second when a partition is new, or when the numbers of the partitions, which are
remembered from one push to the next, turn out to be others. So is a group done that could not be written in one step.
When that was because an id is there already, producers probably repeat themselves: for `DOUBT_SECONDS` ids are looked
for before anything is written.

A transaction has `request_seconds_max`, with all its repetitions, and connecting takes `CONNECT_SECONDS_MAX` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import psycopg
from psycopg import errors

from forebay.broker.push_run import PushRun
from forebay.broker.store import PushItem
from forebay.broker.stores.postgres.attempts import (
    FAILURES,
    Attempts,
    CommitUnknown,
    Unanswered,
    commit_unknown,
    is_connection_doubtful,
)
from forebay.broker.stores.postgres.connections import DURABLE, PLANNED_ONCE
from forebay.broker.stores.postgres.known_push import KnownPush
from forebay.broker.stores.postgres.pushing import (
    PARTITIONS_KNOWN_MAX,
    Availability,
    Decided,
    MissingQueues,
    Outcome,
    PartitionNumbers,
    PushPlan,
)
from forebay.broker.stores.postgres.queries import Statement
from forebay.broker.stores.postgres.wire import BEGIN, COMMIT, Packed, Wire, packed
from forebay.errors import StoreUnavailable

DOUBT_SECONDS = 5.0
Requests = Sequence[Sequence[PushItem]]
OVERLAP_BYTES_MIN = 128 << 10
"""Of a group that is made ready and sent while another is written. Smaller ones rather wait and grow: what a group
costs by itself would be more than what is gained."""
Settle = Callable[[Sequence[Outcome | Exception], Availability], None]
"""Takes what became of each request of a group, and what is to be told of it."""
_COMMIT = packed([COMMIT])


class Group(NamedTuple):
    """Requests that share a transaction."""

    requests: Requests
    settle: Settle


NextGroup = Callable[[int], Group | None]
"""Returns what waits, if it has at least so many bytes."""


class _Ready(NamedTuple):
    """A group that can be written in one step."""

    group: Group
    push: KnownPush
    step: list[Packed]
    deadline: float


class PushWriter:
    """`now_us` is asked once per attempt at a group."""

    def __init__(
        self,
        url: str,
        server_id: str,
        next_group: NextGroup,
        now_us: Callable[[], int | None],
        *,
        request_seconds_max: float,
    ) -> None:
        self._url = url
        self._server_id = server_id
        self._next_group = next_group
        self._now_us = now_us
        self._request_seconds_max = request_seconds_max
        self._settings: Mapping[str, str] = {**DURABLE, **PLANNED_ONCE}
        self._wire: Wire | None = None
        self._known: PartitionNumbers = {}
        self._free: set[str] = set()
        """Queues that took everything when they were last looked at."""
        self._doubts_until = 0.0

    def write(self, group: Group | None) -> None:
        """Write a group, and those that wait behind it, until none waits."""
        while group is not None:
            ready = self._ready(group)
            if ready is None:
                self._ask_and_write(group)
                group = self._next_group(0)
            else:
                group = self._write_in_turn(ready)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def _ready(self, group: Group | None) -> _Ready | None:
        """None when there is no group, or it has to ask before it writes."""
        if group is None or (time.monotonic() < self._doubts_until and not _are_minted(group.requests)):
            return None
        push = KnownPush.of(group.requests, self._known, self._free, self._now_us(), self._server_id)
        if push is None:
            return None
        try:
            step = packed([BEGIN, *push.statements()])
        except Exception:  # noqa: BLE001 -- there is a value that cannot be sent; whoever asks finds out whose
            return None
        return _Ready(group, push, step, time.monotonic() + self._request_seconds_max)

    def _write_in_turn(self, ready: _Ready) -> Group | None:
        """Write a group, and the next while it is committed, as long as any waits; returns one that has to ask."""
        try:
            wire = self._connected()
            wire.send(ready.step, ready.deadline)
        except Exception as error:  # noqa: BLE001 -- whoever asks finds out what it is
            self._ask_and_write(ready.group, error, ready.deadline)
            return self._next_group(0)
        while True:
            following = self._next_group(OVERLAP_BYTES_MIN)
            next_ready = self._ready(following)
            decided = self._written(wire, ready)
            if decided is None:
                return following
            try:
                wire.send(_COMMIT, ready.deadline)
                if following is None:
                    following = self._next_group(OVERLAP_BYTES_MIN)
                    next_ready = self._ready(following)
                if next_ready is not None:
                    wire.send(next_ready.step, next_ready.deadline)
            except Unanswered:
                pass  # and so it is when the answer to COMMIT is waited for
            is_committed = self._committed(wire, ready, decided)
            if next_ready is None:
                return following
            if not is_committed:
                self._ask_and_write(next_ready.group, Unanswered("the connection broke"), next_ready.deadline)
                return self._next_group(0)
            ready = next_ready

    def _written(self, wire: Wire, ready: _Ready) -> Decided | None:
        """What was written in one step and may be committed; None when that was not to be, and it is settled."""
        trouble: Exception | None = None
        try:
            _, *answers = wire.receive(ready.deadline)
            decided = ready.push.decided(*answers)
        except Exception as error:  # noqa: BLE001 -- whoever asks finds out what it is, and whose
            decided, trouble = None, error
        if decided is None:
            wire.roll_back()
            self._ask_and_write(ready.group, trouble, ready.deadline)
        return decided

    def _committed(self, wire: Wire, ready: _Ready, decided: Decided) -> bool:
        """False when it was not, or nobody knows; it is settled in any case."""
        try:
            wire.receive(ready.deadline)
        except Unanswered as error:
            _settle_all(ready.group, commit_unknown(error))
        except psycopg.Error as error:
            wire.close()
            self._ask_and_write(ready.group, error, ready.deadline)
        else:
            ready.group.settle(decided.outcomes, decided.availability)
            return True
        return False

    def _ask_and_write(self, group: Group, trouble: Exception | None = None, deadline: float | None = None) -> None:
        """Settle a group; `trouble` is what came of writing it in one step, by the same `deadline`."""
        if isinstance(trouble, errors.UniqueViolation):
            self._doubts_until = time.monotonic() + DOUBT_SECONDS
        try:
            decided = self._insist(group.requests, trouble, deadline)
        except (StoreUnavailable, MissingQueues) as error:
            _settle_all(group, error)
        except Exception as error:  # noqa: BLE001 -- it belongs to whoever sent what cannot be stored
            if len(group.requests) == 1:
                _settle_all(group, error)
            else:
                self._write_each(group)
        else:
            group.settle(decided.outcomes, decided.availability)

    def _write_each(self, group: Group) -> None:
        """A transaction for each request."""
        outcomes: list[Outcome | Exception] = []
        counts: dict[str, int] = {}
        wanted_elsewhere: set[str] = set()
        for request in group.requests:
            try:
                [outcome], (told, wanted), _ = self._insist([request])
            except Exception as error:  # noqa: BLE001 -- as above
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            wanted_elsewhere |= wanted
            for queue, count in told.items():
                counts[queue] = counts.get(queue, 0) + count
        group.settle(outcomes, Availability(counts, wanted_elsewhere))

    def _insist(self, requests: Requests, trouble: Exception | None = None, deadline: float | None = None) -> Decided:
        """One transaction for all the requests; it is repeated where that is safe."""
        attempts = Attempts()
        deadline = deadline or time.monotonic() + self._request_seconds_max
        while True:
            try:
                if isinstance(trouble, FAILURES):
                    # Written in one step, it failed: that was the first attempt.
                    again, trouble = trouble, None
                    raise again
                plan = PushPlan(self._now_us(), self._server_id, self._known, looks_for_all=not attempts.is_first)
                decided = self._once(plan, requests, deadline)
            except FAILURES as error:
                if is_connection_doubtful(error):
                    self.close()
                time.sleep(attempts.pause_after(error))
            else:
                self._note(plan)
                return decided

    def _note(self, plan: PushPlan) -> None:
        """What its commit has made true."""
        self._known.update(plan.made)
        if len(self._free) > PARTITIONS_KNOWN_MAX:
            self._free.clear()
        self._free |= plan.free
        self._free -= plan.guarded

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


def _are_minted(requests: Requests) -> bool:
    return all(
        request.is_minted if type(request) is PushRun else all(item.is_minted for item in request)
        for request in requests
    )


def _settle_all(group: Group, error: Exception) -> None:
    group.settle([error] * len(group.requests), Availability({}, set()))


def _commit(wire: Wire, writes: list[Statement], deadline: float) -> None:
    """The last trip. COMMIT goes with it, so from its first byte on nobody knows what a silence means."""
    try:
        wire.exchange([*writes, COMMIT], deadline)
    except Unanswered as error:
        raise CommitUnknown from error
