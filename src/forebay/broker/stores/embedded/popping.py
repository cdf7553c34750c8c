"""The way out: claiming messages for a group."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.broker import delivery
from forebay.broker.delivery import Claim, DeadLetter, DeliveryState
from forebay.broker.message_columns import MessageColumns, columns_of
from forebay.broker.messages import Message, Popped, PopRequest, count_within
from forebay.broker.queue_rules import pop_order, window_end_us
from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.dead_letters import DeadLetters
from forebay.broker.stores.embedded.fetching import Fetcher, RecordLost, seq_before
from forebay.broker.stores.embedded.index import MessageIndex, Partition
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Group, OpenQueue, Queues
from forebay.broker.stores.embedded.ready import ReadyList
from forebay.broker.stores.embedded.states import States
from forebay.broker.stores.embedded.whole_leases import WholeLeases, attempted
from forebay.clock import SECOND_US, Clock
from forebay.errors import InvariantBroken
from forebay.model.queue import QueueOptions

CUT_SHORT = Popped("", [], 0)
"""Of a pop that has only buried messages so far: ask again."""
PARTITIONS_BEHIND = query("partitions_behind")


class ListToMake(NamedTuple):
    queue_id: int
    group: str
    group_id: int
    start_seq: int


class Popper:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        index: MessageIndex,
        letters: DeadLetters,
        clock: Clock,
        limits: EmbeddedLimits,
    ) -> None:
        self._database = database
        self._queues = queues
        self.fetcher = Fetcher(index, clock)
        self.states = States(database, queues, index, self.fetcher)
        self._letters = letters
        self.dropped = Counter[str]()
        """Messages that died and of which no dead letter is kept, by the kind of reason."""
        self._clock = clock
        self._limits = limits
        self._is_cut_short = False
        self._now_us = 0
        """Of the pop under way."""
        self._whole = WholeLeases(self, database, clock)

    def pop(self, request: PopRequest) -> Popped:
        lease_id = str(uuid.uuid4())
        # One reading for all partitions: a lease ends at one moment, or it could be lost in some of them only.
        self._now_us = self._clock.now_us()
        messages = MessageColumns()
        claimed = 0
        left = request
        self._is_cut_short = False
        for queue in self._chosen(request):
            group = self._joined(queue, request)
            for partition_id in self._candidates(queue, group, request):
                lost = self._whole.lost_lease(queue, group, partition_id) if request.whole_leases else ""
                if lost and claimed:
                    return Popped(lease_id, messages, claimed)
                if lost and (whole := self._whole.claim(queue, group, lost, request, lease_id)).messages:
                    return whole
                found = self._claim(queue, group, partition_id, left, lease_id)
                if found is None:
                    continue
                messages = messages.joined(found)
                claimed += 1
                if claimed >= request.partitions or len(messages) >= request.batch:
                    return Popped("" if request.auto_ack else lease_id, messages, claimed)
                left = request.after(len(messages), messages.payloads.size_bytes())
                if left.bytes_max <= 0:
                    return Popped("" if request.auto_ack else lease_id, messages, claimed)
        if not claimed:
            return CUT_SHORT if self._is_cut_short else Popped("", [], 0)
        return Popped("" if request.auto_ack else lease_id, messages, claimed)

    def _chosen(self, request: PopRequest) -> list[OpenQueue]:
        if request.queue:
            queue = self._queues.by_name.get(request.queue)
            if queue is None and request.subscription_mode != "all":
                # What is pushed from now on is the group's, so the queue has to know it.
                queue = self._queues.made(request.queue, "", "")
            return [queue] if queue else []
        fitting = [
            queue
            for queue in self._queues.by_id.values()
            if request.namespace in ("", queue.info.namespace) and request.task in ("", queue.info.task)
        ]
        return sorted(fitting, key=lambda queue: pop_order(queue.info))

    def seconds_until_due(self, request: PopRequest) -> float | None:
        """When the first partition wakes that the pop could take from."""
        times = []
        for queue in self._chosen(request):
            group = queue.groups.get(request.group)
            if group is None or group.ready is None:
                continue
            if request.partition is None:
                times.append(group.ready.next_us())
            else:
                times.append(group.ready.wakes_us(queue.partitions.get(request.partition, 0)))
        due = [time_us for time_us in times if time_us is not None]
        return max(min(due) - self._clock.now_us(), 0) / SECOND_US if due else None

    def _joined(self, queue: OpenQueue, request: PopRequest) -> Group:
        """The group; its first pop on a queue decides where it starts."""
        group = queue.groups.get(request.group)
        if group is not None:
            group.last_active_us = self._clock.now_us()
            return group
        start_seq = 0
        if request.subscription_mode == "new":
            start_seq = queue.log.next_seq - 1
        elif request.subscription_mode == "from":
            start_seq = seq_before(queue.log, request.subscription_from_us)
        return self.add_group(queue, request.group, request.subscription_mode, request.subscription_from_us, start_seq)

    def add_group(self, queue: OpenQueue, name: str, mode: str, from_us: int, start_seq: int) -> Group:
        now_us = self._clock.now_us()
        group_id = self._database.insert(
            query("group_add"),
            (queue.queue_id, name, mode, from_us, start_seq, now_us, now_us),
        )
        group = queue.groups[name] = Group(group_id, name, start_seq)
        queue.waiting = None  # it was not counted
        return group

    def _candidates(self, queue: OpenQueue, group: Group, request: PopRequest) -> Iterator[int]:
        if request.partition is not None:
            partition_id = queue.partitions.get(request.partition)
            if partition_id is not None:
                self.ready(queue, group)
                yield partition_id
            return
        ready = self.ready(queue, group)
        # Every claim takes its partition from the front, so this ends: at the latest when each was tried once.
        for _ in range(len(ready)):
            partition_id = ready.first(self._now_us)
            if partition_id is None:
                return
            yield partition_id

    def ready(self, queue: OpenQueue, group: Group) -> ReadyList:
        if group.ready is None:
            group.ready = ReadyList(self._numbers_behind(queue, group))
        return group.ready

    def _numbers_behind(self, queue: OpenQueue, group: Group) -> list[int]:
        """Partitions with messages that the group has not finished; those that got theirs first come first."""
        values = {"group_id": group.group_id, "queue_id": queue.queue_id, "start_seq": group.start_seq}
        return [number for (number,) in self._database.execute(PARTITIONS_BEHIND, values)]

    def begin_lists(self, request: PopRequest) -> list[ListToMake]:
        """Lists that the pop needs and that take long to make: begun, so that they miss nothing from now on."""
        lists = []
        for queue in self._chosen(request):
            if len(queue.partitions) > self._limits.listed_partitions_max:
                group = self._joined(queue, request)
                if group.ready is None:
                    group.ready = ReadyList((), is_whole=False)
                if not group.ready.is_whole:
                    lists.append(ListToMake(queue.queue_id, group.name, group.group_id, group.start_seq))
        return lists

    def end_list(self, made: ListToMake, partitions: Sequence[int]) -> None:
        """Here is what a list has to have that was begun."""
        queue = self._queues.by_id.get(made.queue_id)
        group = queue.groups.get(made.group) if queue is not None else None
        if group is not None and group.ready is not None and group.group_id == made.group_id:
            group.ready.join(partitions)

    def _claim(
        self, queue: OpenQueue, group: Group, partition_id: int, request: PopRequest, lease_id: str
    ) -> MessageColumns | None:
        """What the partition has for the group now, claimed; None when that is nothing."""
        options, now_us, ready = queue.info.options, self._now_us, self.ready(queue, group)
        partition, state = self.state_of(queue, group, partition_id)
        if self._is_left_alone(ready, partition, state, options, now_us):
            return None
        before = state
        if options.ttl_seconds:
            try:
                state = self.without_expired(queue, partition, state, now_us)
            except RecordLost:
                partition, state = self.state_of(queue, group, partition_id)
        reach, buried, finished = request.batch, 0, before.finished_count()
        while True:
            seq = max(state.last_seen_seq(), partition.floor_seq)
            gone = self.states.deleted(partition, seq)
            fresh, due_us = self.fetcher.fresh(
                queue,
                partition,
                seq,
                gone,
                batch=reach,
                bytes_max=request.bytes_max,
                options=options,
            )
            if request.check is not None:
                request.check(fresh)
            short = None
            if not request.auto_ack and not buried:
                short = lease_rows.leased(state, fresh, options, now_us, lease_id, request.lease_seconds)
            if short is not None:
                self.states.save_encoded(group, partition_id, short, lease_rows.encode(short))
                ready.put_to_sleep(partition_id, short.until_us)
                return fresh
            try:
                taken, known = self._decided(queue, partition, state, fresh, request, lease_id, now_us)
            except RecordLost:
                partition, state = self.state_of(queue, group, partition_id)
                continue
            if taken is None:
                self.rest(ready, partition, state, due_us)
                return None
            if known and request.check is not None:
                request.check([known[seq] for seq, _ in taken.delivered])
            self.states.save(group, partition_id, taken.state)
            self.note_finished(queue, group, partition, taken.state.finished_count() - finished)
            finished = taken.state.finished_count()
            if not known:
                # All of it is new, so it is what was fetched, as it was fetched.
                self.rest(ready, partition, taken.state, is_served=True)
                return fresh
            self.bury(queue, partition_id, group.name, taken.dead, known)
            state = taken.state
            buried += len(taken.dead) if taken.taken else max(len(taken.dead), len(fresh))
            if taken.taken:
                break
            if buried >= self._limits.buried_messages_max:
                ready.rotate(partition_id)
                self._is_cut_short = True
                return None
            # Everything in reach was dead; behind it there may be something alive.
            reach = max(request.batch, self._limits.reach_messages)
        self.rest(ready, partition, state, is_served=True)
        return columns_of([attempted(known[seq], attempts) for seq, attempts in taken.delivered])

    def without_expired(
        self, queue: OpenQueue, partition: Partition, state: DeliveryState, now_us: int
    ) -> DeliveryState:
        """What was delivered before and has outlived the queue's `ttl` since is finished."""
        waiting = [pending.seq for pending in state.pending if not pending.is_finished]
        found = self.fetcher.by_seq(queue, partition, waiting)
        options = queue.info.options
        expired = {s for s, message in found.items() if delivery.is_expired(now_us - message.created_us, options)}
        return delivery.without_gone(state, lambda seq: seq not in expired) if expired else state

    def state_of(self, queue: OpenQueue, group: Group, partition_id: int) -> tuple[Partition, DeliveryState]:
        found = self.states.partition_and_state(group, partition_id)
        if found is None:
            raise InvariantBroken(f"partition {partition_id} of queue {queue.info.name!r} is ready and has no row")
        return found

    def _is_left_alone(
        self, ready: ReadyList, partition: Partition, state: DeliveryState, options: QueueOptions, now_us: int
    ) -> bool:
        """Whether its window is still open, or a consumer holds it; then it is put where it belongs."""
        if until_us := window_end_us(partition.newest_us, options, now_us):
            ready.put_to_sleep(partition.partition_id, until_us)
            return True
        if delivery.is_held(state, options, now_us):
            self.rest(ready, partition, state)
            return True
        return False

    def _decided(
        self,
        queue: OpenQueue,
        partition: Partition,
        state: DeliveryState,
        fresh: MessageColumns,
        request: PopRequest,
        lease_id: str,
        now_us: int,
    ) -> tuple[Claim | None, dict[int, Message]]:
        """What is claimed; and the messages of it by their seqs, where it is not just what was fetched."""

        def claim(batch: int) -> Claim | None:
            return delivery.claim(
                state,
                fresh,
                queue.info.options,
                group=request.group,
                now_us=now_us,
                batch=batch,
                lease_id=lease_id,
                auto_ack=request.auto_ack,
                lease_seconds=request.lease_seconds,
            )

        taken = claim(request.batch)
        if taken is None or not (state.pending or taken.dead or len(taken.taken) < len(fresh)):
            return taken, {}
        known = {message.seq: message for message in fresh}
        wanted = [seq for seq, _ in taken.delivered] + [letter.seq for letter in taken.dead]
        known |= self.fetcher.by_seq(queue, partition, [seq for seq in wanted if seq not in known])
        fitting = count_within([len(known[seq].payload) for seq, _ in taken.delivered], request.bytes_max)
        return taken if fitting == len(taken.taken) else claim(fitting), known

    def note_finished(self, queue: OpenQueue, group: Group, partition: Partition, messages: int) -> None:
        """Keep the count of what waits for a limited queue's groups. Deleted and lost messages are not followed."""
        if queue.waiting is None or not messages:
            return
        if partition.has_deleted:
            queue.waiting = None
        else:
            queue.waiting.finished(group.group_id, partition.partition_id, messages)

    def rest(
        self,
        ready: ReadyList,
        partition: Partition,
        state: DeliveryState,
        visible_us: int = 0,
        *,
        is_served: bool = False,
    ) -> bool:
        """Put a partition where it belongs: asleep until its time, behind the others, or off the list (False)."""
        now_us = self._clock.now_us()
        due_us = delivery.due_us(state, self._queues.by_id[partition.queue_id].info.options, now_us)
        if due_us is not None and due_us > now_us:
            ready.put_to_sleep(partition.partition_id, due_us)
        elif visible_us:
            ready.put_to_sleep(partition.partition_id, visible_us)
        elif due_us is not None or (is_served and state.last_seen_seq() < partition.last_seq):
            ready.rotate(partition.partition_id)
        else:
            ready.drop(partition.partition_id)
            return False
        return True

    def bury(
        self,
        queue: OpenQueue,
        partition_id: int,
        group: str,
        dead: Sequence[DeadLetter],
        messages: dict[int, Message],
    ) -> None:
        self.dropped += delivery.dropped_by_kind(dead)
        for letter in dead:
            if not letter.is_dropped:
                self._letters.add(queue, partition_id, group, letter, messages[letter.seq])
