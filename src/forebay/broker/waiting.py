"""Long polling: consumers that wait for messages, and which of them are woken when some arrive.

A consumer that finds nothing parks in a *waiting list*: the consumers of one group with the same request (a queue, one
partition of it, or a namespace and task). All of a list would get the same messages, so waking more of them than there
are messages is wasted work. The rules:

- A commit of `n` messages wakes up to `n` of each list that they may be for, first come first served.
- A consumer that took a full batch wakes the next: there may be more than it could carry.
- What ends by time (a lease, a delay, a retry) is not announced. But a consumer that found nothing has learned when
  the first of these is due, and at that time the first of the list is woken to look (`look_again_in`). When it finds
  something it wakes the next. An answer that changes such a time is announced like a message.
- For whatever was missed there is a net: twice a second the first of a list is woken in the same way. At most
  `NET_LISTS_MAX` lists are looked after at once, in turn; a server with more lists looks at each of them less often.
- A consumer that goes away while it waits is out of its list at once. If it had been woken already, it passes that on.

The store tells of a queue and a count, not of partitions; a push through this server gives the partition as well
(`announce_partition`). A consumer of one partition is therefore woken exactly by a push through this server, and by
its turn among `PARTITION_LOOKS_MIN` lists per commit, or by the net, when it was made through another.

Nothing here is durable and nothing is popped here: a wake-up is a hint to ask the store, a lost one costs half a
second, and a superfluous one a look. A parked consumer costs one future and one timer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import MutableMapping, Sequence
from typing import NamedTuple, TypeVar

from forebay.model.push_run import PushRun

NET_SECONDS = 0.5
NET_LISTS_MAX = 200
PARTITION_LOOKS_MIN = 8
"""Lists for one partition that look after a commit of which only the queue is known."""
LOOK_SECONDS_MIN = 0.02
"""How soon a list looks again because of a time that has come: a store may say "now" and still find nothing."""
BELONGINGS_MAX = 100_000
"""Queues whose namespace and task are remembered here."""


class Wanted(NamedTuple):
    """What a list waits for. Without a queue: any queue of the namespace and task (empty: any)."""

    group: str
    queue: str = ""
    partition: str | None = None
    namespace: str = ""
    task: str = ""

    def matches(self, namespace: str, task: str) -> bool:
        return self.namespace in ("", namespace) and self.task in ("", task)


class WaitingList:
    """Consumers that wait for the same thing, in order of arrival."""

    __slots__ = ("missed", "parked", "timer", "visits", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.parked: OrderedDict[Visit, asyncio.Future[bool]] = OrderedDict()
        self.visits = 0
        self.timer: asyncio.TimerHandle | None = None
        """When something is due that only waits for its time."""
        self.missed = 0
        """Wake-ups that found no consumer parked. A consumer that was just looking then looks again before it parks."""

    def wake(self, count: int, *, by_net: bool = False) -> None:
        for _ in range(min(count, len(self.parked))):
            visit, future = self.parked.popitem(last=False)
            count -= 1
            visit.is_woken, visit.is_by_net = True, by_net
            if not future.done():
                future.set_result(True)
        if count > 0 and not by_net:
            self.missed += 1

    def look_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """Wake one at this time, unless one is woken earlier anyway."""
        if self.timer is not None and self.timer.when() <= when:
            return
        self.forget_time()
        self.timer = loop.call_at(when, self._time_has_come)

    def _time_has_come(self) -> None:
        self.timer = None
        self.wake(1, by_net=True)

    def forget_time(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Visit:
    """One consumer's stay: enter before the first look, so that nothing can arrive unseen between look and wait."""

    __slots__ = ("_has_looked_in_vain", "_missed_before", "_room", "is_abandoned", "is_by_net", "is_woken", "waiting")

    def __init__(self, room: WaitingRoom, waiting: WaitingList) -> None:
        self._room = room
        self._missed_before = waiting.missed
        self._has_looked_in_vain = False
        self.waiting = waiting
        self.is_woken = False
        self.is_by_net = False
        self.is_abandoned = False

    async def until_woken(self, deadline: float) -> bool:
        """Wait until it is worth looking again. False: the time (of the loop's clock) is over, or the room closes."""
        loop = asyncio.get_running_loop()
        if self._room.is_closed or self.is_abandoned or deadline <= loop.time():
            return False
        if self.waiting.missed != self._missed_before:
            self._missed_before = self.waiting.missed
            return True
        future: asyncio.Future[bool] = loop.create_future()
        self.waiting.parked[self] = future
        if self._has_looked_in_vain:
            # It was the first of its list, and still is.
            self.waiting.parked.move_to_end(self, last=False)
        timer = loop.call_at(deadline, _time_is_over, future)
        try:
            return await future
        finally:
            timer.cancel()
            self.waiting.parked.pop(self, None)
            self._missed_before = self.waiting.missed

    def looked(self, found: int, batch: int) -> None:
        """The store has answered. Where there may be more than was found, the next one is to look as well."""
        self._has_looked_in_vain = self.is_woken and not found
        if found >= batch or (self.is_by_net and found):
            self.waiting.wake(1)
        self.is_woken = self.is_by_net = False

    def look_again_in(self, seconds: float | None) -> None:
        """The store has said when something is due; None: nothing waits for its time."""
        if seconds is not None and not self._room.is_closed:
            loop = asyncio.get_running_loop()
            self.waiting.look_at(loop, loop.time() + max(seconds, LOOK_SECONDS_MIN))

    def abandon(self) -> None:
        """The client has gone away: wait no longer, and look no more."""
        self.is_abandoned = True
        future = self.waiting.parked.pop(self, None)
        if future is not None:
            _time_is_over(future)

    def leave(self) -> None:
        """Be gone. A wake-up that was not followed by a look goes to the next."""
        self._room.left(self)


def _time_is_over(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class WaitingRoom:
    """All lists of one server. Lives on one event loop; `on_available` alone may be called from anywhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, net_seconds: float = NET_SECONDS) -> None:
        self.is_closed = False
        self._net_seconds = net_seconds
        self._loop = loop
        self._lists: OrderedDict[Wanted, WaitingList] = OrderedDict()
        # The same lists again, by what they wait for: whole queues, single partitions, namespaces and tasks.
        self._for_queue: dict[str, dict[Wanted, WaitingList]] = {}
        self._for_partitions_of: dict[str, OrderedDict[Wanted, WaitingList]] = {}
        self._for_partition: dict[tuple[str, str], dict[Wanted, WaitingList]] = {}
        self._selecting: dict[Wanted, WaitingList] = {}
        self._belongings: dict[str, tuple[str, str]] = {}
        self._net: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many consumers are parked."""
        return sum(len(waiting.parked) for waiting in self._lists.values())

    def by_queue(self) -> Counter[str]:
        """How many wait for each queue; for a namespace or task as a whole under no name."""
        return Counter(waiting.wanted.queue for waiting in self._lists.values() for _ in waiting.parked)

    def enter(self, wanted: Wanted) -> Visit:
        waiting = self._lists.get(wanted)
        if waiting is None:
            waiting = self._lists[wanted] = WaitingList(wanted)
            self._file(waiting)
        waiting.visits += 1
        if self._net is None:
            self._net = self._loop.call_later(self._net_seconds, self._cast)
        return Visit(self, waiting)

    def left(self, visit: Visit) -> None:
        waiting = visit.waiting
        if visit.is_woken:
            visit.is_woken = False
            waiting.wake(1)
        waiting.visits -= 1
        if not waiting.visits:
            waiting.forget_time()
            del self._lists[waiting.wanted]
            self._unfile(waiting.wanted)

    def _file(self, waiting: WaitingList) -> None:
        wanted = waiting.wanted
        if not wanted.queue:
            self._selecting[wanted] = waiting
        elif wanted.partition is None:
            self._for_queue.setdefault(wanted.queue, {})[wanted] = waiting
        else:
            self._for_partitions_of.setdefault(wanted.queue, OrderedDict())[wanted] = waiting
            self._for_partition.setdefault((wanted.queue, wanted.partition), {})[wanted] = waiting

    def _unfile(self, wanted: Wanted) -> None:
        if not wanted.queue:
            del self._selecting[wanted]
        elif wanted.partition is None:
            _drop(self._for_queue, wanted.queue, wanted)
        else:
            _drop(self._for_partitions_of, wanted.queue, wanted)
            _drop(self._for_partition, (wanted.queue, wanted.partition), wanted)

    def on_available(self, queue: str, count: int) -> None:
        """The store's waker: there are so many more, or something is due at another time than before."""
        if self._lists:
            self._loop.call_soon_threadsafe(self.announce, queue, count)

    def announce(self, queue: str, count: int) -> None:
        """Messages of the queue became available: wake as many as there are messages, in every list for it."""
        for waiting in list(self._for_queue.get(queue, {}).values()):
            waiting.wake(count)
        if single := self._for_partitions_of.get(queue):
            for _ in range(min(len(single), max(count, PARTITION_LOOKS_MIN))):
                wanted, waiting = next(iter(single.items()))
                # To the end, so that the next commit wakes others.
                single.move_to_end(wanted)
                waiting.wake(1)
        if self._selecting:
            belonging = self._belongings.get(queue)
            for waiting in list(self._selecting.values()):
                if belonging is None or waiting.wanted.matches(*belonging):
                    waiting.wake(count)

    def announce_partition(self, queue: str, partition: str, count: int = 1) -> None:
        """So many messages were pushed to this partition through this server."""
        for waiting in list(self._for_partition.get((queue, partition), {}).values()):
            waiting.wake(count)

    def announce_runs(self, runs: Sequence[PushRun]) -> None:
        """Messages were stored through this server."""
        if self._for_partition:
            for run in runs:
                for partition, count in Counter(run.partitions).items():
                    self.announce_partition(run.queue, partition, count)

    @property
    def has_lists_for_partitions(self) -> bool:
        return bool(self._for_partition)

    def learn(self, queue: str, namespace: str, task: str) -> None:
        """Where a queue belongs. Of a queue that is not known here, every consumer of a namespace or task hears."""
        if len(self._belongings) < BELONGINGS_MAX or queue in self._belongings:
            self._belongings[queue] = (namespace, task)

    def forget(self, queue: str) -> None:
        self._belongings.pop(queue, None)

    def cast_net(self) -> None:
        """Let the first of each list look, up to `NET_LISTS_MAX` lists; the others come first next time."""
        for _ in range(min(NET_LISTS_MAX, len(self._lists))):
            wanted, waiting = next(iter(self._lists.items()))
            self._lists.move_to_end(wanted)
            waiting.wake(1, by_net=True)

    def _cast(self) -> None:
        self._net = self._loop.call_later(self._net_seconds, self._cast) if self._lists and not self.is_closed else None
        self.cast_net()

    def close(self) -> None:
        """Send all consumers home; none waits here any more."""
        self.is_closed = True
        if self._net is not None:
            self._net.cancel()
            self._net = None
        for waiting in self._lists.values():
            waiting.forget_time()
            while waiting.parked:
                _, future = waiting.parked.popitem(last=False)
                _time_is_over(future)


_Key = TypeVar("_Key", str, tuple[str, str])
_Lists = TypeVar("_Lists", bound=MutableMapping[Wanted, WaitingList])


def _drop(homes: MutableMapping[_Key, _Lists], key: _Key, wanted: Wanted) -> None:
    lists = homes[key]
    del lists[wanted]
    if not lists:
        del homes[key]
