"""Long polling: consumers that wait for messages, and who is woken when some arrive.

A consumer that finds nothing parks in a *line*: the consumers of one group that asked for the same thing (a queue, one
partition of it, or a namespace and task). All of a line would get the same messages, so waking more of them than there
are messages is wasted work. The rules:

- A commit of `n` messages wakes up to `n` of each line that they may be for, first come first served.
- A consumer that took a full batch wakes the next: there may be more than it could carry.
- What ends by time (a lease, a delay, a retry) is announced by nobody. But whoever found nothing asked the store when
  the first of these is due, and at that time the first of the line is woken to look (`look_again_in`). When it finds
  something it wakes the next. An answer that changes such a time is announced like a message.
- For whatever was missed there is a net: twice a second the first of a line is woken in the same way. At most
  `NET_LINES_MAX` lines are looked after at once, in turn; a server with more lines looks at each of them less often.
- A consumer that goes away while it waits is out of its line at once. If it had been woken already, it passes that on.

The store tells of a queue and a count, not of partitions; whoever pushed here tells the partition as well
(`announce_partition`). A consumer of one partition is therefore woken exactly by a push through this server, and by
its turn among `PARTITION_LOOKS_MIN` lines per commit, or by the net, when it was made through another.

Nothing here is durable and nothing is popped here: a wake-up is a hint to ask the store, a lost one costs half a
second, and a superfluous one a look. A parked consumer costs one future and one timer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import MutableMapping, Sequence
from typing import NamedTuple, TypeVar

from forebay.broker.messages import PushItem

NET_SECONDS = 0.5
NET_LINES_MAX = 200
PARTITION_LOOKS_MIN = 8
"""Lines for one partition that look after a commit of which only the queue is known."""
LOOK_SECONDS_MIN = 0.02
"""How soon a line looks again because of a time that has come: a store may say "now" and still find nothing."""
BELONGINGS_MAX = 100_000
"""Queues whose namespace and task are remembered here."""


class Wanted(NamedTuple):
    """What a line waits for. Without a queue: any queue of the namespace and task (empty: any)."""

    group: str
    queue: str = ""
    partition: str | None = None
    namespace: str = ""
    task: str = ""

    def matches(self, namespace: str, task: str) -> bool:
        return self.namespace in ("", namespace) and self.task in ("", task)


class Line:
    """Consumers that wait for the same thing, in order of arrival."""

    __slots__ = ("missed", "parked", "timer", "visits", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.parked: OrderedDict[Visit, asyncio.Future[bool]] = OrderedDict()
        self.visits = 0
        self.timer: asyncio.TimerHandle | None = None
        """When something is due that only waits for its time."""
        self.missed = 0
        """Wake-ups that found nobody parked. A consumer that was just looking then looks again before it parks."""

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

    __slots__ = ("_has_looked_in_vain", "_missed_before", "_room", "is_abandoned", "is_by_net", "is_woken", "line")

    def __init__(self, room: WaitingRoom, line: Line) -> None:
        self._room = room
        self._missed_before = line.missed
        self._has_looked_in_vain = False
        self.line = line
        self.is_woken = False
        self.is_by_net = False
        self.is_abandoned = False

    async def until_woken(self, deadline: float) -> bool:
        """Wait until it is worth looking again. False: the time (of the loop's clock) is over, or the room closes."""
        loop = asyncio.get_running_loop()
        if self._room.is_closed or self.is_abandoned or deadline <= loop.time():
            return False
        if self.line.missed != self._missed_before:
            self._missed_before = self.line.missed
            return True
        future: asyncio.Future[bool] = loop.create_future()
        self.line.parked[self] = future
        if self._has_looked_in_vain:
            # It was the first of its line, and still is.
            self.line.parked.move_to_end(self, last=False)
        timer = loop.call_at(deadline, _time_is_over, future)
        try:
            return await future
        finally:
            timer.cancel()
            self.line.parked.pop(self, None)
            self._missed_before = self.line.missed

    def looked(self, found: int, batch: int) -> None:
        """The store was asked. Where there may be more than was found, the next one is to look as well."""
        self._has_looked_in_vain = self.is_woken and not found
        if found >= batch or (self.is_by_net and found):
            self.line.wake(1)
        self.is_woken = self.is_by_net = False

    def look_again_in(self, seconds: float | None) -> None:
        """The store was asked when something is due; None: nothing waits for its time."""
        if seconds is not None and not self._room.is_closed:
            loop = asyncio.get_running_loop()
            self.line.look_at(loop, loop.time() + max(seconds, LOOK_SECONDS_MIN))

    def abandon(self) -> None:
        """The client has gone away: wait no longer, and look no more."""
        self.is_abandoned = True
        future = self.line.parked.pop(self, None)
        if future is not None:
            _time_is_over(future)

    def leave(self) -> None:
        """Be gone. A wake-up that was not followed by a look goes to the next."""
        self._room.left(self)


def _time_is_over(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class WaitingRoom:
    """All lines of one server. Lives on one event loop; `on_available` alone may be called from anywhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closed = False
        self._loop = loop
        self._lines: OrderedDict[Wanted, Line] = OrderedDict()
        # The same lines again, by what they wait for: whole queues, single partitions, namespaces and tasks.
        self._for_queue: dict[str, dict[Wanted, Line]] = {}
        self._for_partitions_of: dict[str, OrderedDict[Wanted, Line]] = {}
        self._for_partition: dict[tuple[str, str], dict[Wanted, Line]] = {}
        self._selecting: dict[Wanted, Line] = {}
        self._belongings: dict[str, tuple[str, str]] = {}
        self._net: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many consumers are parked."""
        return sum(len(line.parked) for line in self._lines.values())

    def by_queue(self) -> Counter[str]:
        """How many wait for each queue; for a namespace or task as a whole under no name."""
        return Counter(line.wanted.queue for line in self._lines.values() for _ in line.parked)

    def enter(self, wanted: Wanted) -> Visit:
        line = self._lines.get(wanted)
        if line is None:
            line = self._lines[wanted] = Line(wanted)
            self._file(line)
        line.visits += 1
        if self._net is None:
            self._net = self._loop.call_later(NET_SECONDS, self._cast)
        return Visit(self, line)

    def left(self, visit: Visit) -> None:
        line = visit.line
        if visit.is_woken:
            visit.is_woken = False
            line.wake(1)
        line.visits -= 1
        if not line.visits:
            line.forget_time()
            del self._lines[line.wanted]
            self._unfile(line.wanted)

    def _file(self, line: Line) -> None:
        wanted = line.wanted
        if not wanted.queue:
            self._selecting[wanted] = line
        elif wanted.partition is None:
            self._for_queue.setdefault(wanted.queue, {})[wanted] = line
        else:
            self._for_partitions_of.setdefault(wanted.queue, OrderedDict())[wanted] = line
            self._for_partition.setdefault((wanted.queue, wanted.partition), {})[wanted] = line

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
        if self._lines:
            self._loop.call_soon_threadsafe(self.announce, queue, count)

    def announce(self, queue: str, count: int) -> None:
        """Messages of the queue became available: wake as many as there are messages, in every line for it."""
        for line in list(self._for_queue.get(queue, {}).values()):
            line.wake(count)
        if single := self._for_partitions_of.get(queue):
            for _ in range(min(len(single), max(count, PARTITION_LOOKS_MIN))):
                wanted, line = next(iter(single.items()))
                # To the end, so that the next commit wakes others.
                single.move_to_end(wanted)
                line.wake(1)
        if self._selecting:
            belonging = self._belongings.get(queue)
            for line in list(self._selecting.values()):
                if belonging is None or line.wanted.matches(*belonging):
                    line.wake(count)

    def announce_partition(self, queue: str, partition: str) -> None:
        """A message was pushed to this partition through this server."""
        for line in list(self._for_partition.get((queue, partition), {}).values()):
            line.wake(1)

    def announce_items(self, items: Sequence[PushItem]) -> None:
        """Messages were stored through this server."""
        if self._for_partition:
            for item in items:
                self.announce_partition(item.queue, item.partition)

    @property
    def has_lines_for_partitions(self) -> bool:
        return bool(self._for_partition)

    def learn(self, queue: str, namespace: str, task: str) -> None:
        """Where a queue belongs. Of a queue that is not known here, every consumer of a namespace or task hears."""
        if len(self._belongings) < BELONGINGS_MAX or queue in self._belongings:
            self._belongings[queue] = (namespace, task)

    def forget(self, queue: str) -> None:
        self._belongings.pop(queue, None)

    def cast_net(self) -> None:
        """Let the first of each line look, up to `NET_LINES_MAX` lines; the others come first next time."""
        for _ in range(min(NET_LINES_MAX, len(self._lines))):
            wanted, line = next(iter(self._lines.items()))
            self._lines.move_to_end(wanted)
            line.wake(1, by_net=True)

    def _cast(self) -> None:
        self._net = self._loop.call_later(NET_SECONDS, self._cast) if self._lines and not self.is_closed else None
        self.cast_net()

    def close(self) -> None:
        """Send everybody home; nobody waits here any more."""
        self.is_closed = True
        if self._net is not None:
            self._net.cancel()
            self._net = None
        for line in self._lines.values():
            line.forget_time()
            while line.parked:
                _, future = line.parked.popitem(last=False)
                _time_is_over(future)


_Place = TypeVar("_Place", str, tuple[str, str])
_Lines = TypeVar("_Lines", bound=MutableMapping[Wanted, Line])


def _drop(homes: MutableMapping[_Place, _Lines], place: _Place, wanted: Wanted) -> None:
    lines = homes[place]
    del lines[wanted]
    if not lines:
        del homes[place]
