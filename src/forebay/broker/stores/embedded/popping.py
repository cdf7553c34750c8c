"""The way out: claiming messages for a group, and taking its answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.broker import delivery
from forebay.broker.delivery import Answered, Candidate, DeadLetter, DeliveryState
from forebay.broker.store import Acknowledged, Acknowledgement, Message, Popped, PopRequest
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.letters import DeadLetters
from forebay.broker.stores.embedded.queues import Group, OpenQueue, Queues
from forebay.broker.stores.embedded.ready import ReadyList
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.clock import Clock
from forebay.model.message import PAYLOAD_IS_BINARY

_SECOND_US = 1_000_000
_BLOCKS_AT_ONCE = 64


class Partition(NamedTuple):
    """A partition's row, as a claim needs it."""

    partition_id: int
    name: str
    last_seq: int
    newest_us: int
    floor_seq: int
    pushed: int


class Popper:
    def __init__(
        self, database: Database, queues: Queues, index: MessageIndex, letters: DeadLetters, clock: Clock
    ) -> None:
        self._database = database
        self._queues = queues
        self._index = index
        self._letters = letters
        self._clock = clock

    def pop(self, request: PopRequest) -> Popped:
        lease_id = str(uuid.uuid4())
        messages: list[Message] = []
        claimed = 0
        for queue in self._chosen(request):
            group = self._joined(queue, request)
            for partition_id in self._candidates(queue, group, request):
                found = self._claim(queue, group, partition_id, request, lease_id, request.batch - len(messages))
                messages += found
                claimed += bool(found)
                if claimed >= request.partitions or len(messages) >= request.batch:
                    return Popped("" if request.auto_ack else lease_id, messages, claimed)
        return Popped(lease_id if messages and not request.auto_ack else "", messages, claimed)

    def _chosen(self, request: PopRequest) -> list[OpenQueue]:
        if request.queue:
            queue = self._queues.by_name.get(request.queue)
            return [queue] if queue else []
        fitting = [
            queue
            for queue in self._queues.by_id.values()
            if request.namespace in ("", queue.info.namespace) and request.task in ("", queue.info.task)
        ]
        return sorted(fitting, key=lambda queue: (-queue.info.options.priority, queue.info.name))

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
            start_seq = self.seq_before(queue, request.subscription_from_us)
        return self.add_group(queue, request.group, request.subscription_mode, request.subscription_from_us, start_seq)

    def add_group(self, queue: OpenQueue, name: str, mode: str, from_us: int, start_seq: int) -> Group:
        now_us = self._clock.now_us()
        group_id = self._database.insert(
            "INSERT INTO groups (queue_id, name, mode, from_us, start_seq, created_us, last_active_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (queue.queue_id, name, mode, from_us, start_seq, now_us, now_us),
        )
        group = queue.groups[name] = Group(group_id, name, start_seq)
        return group

    def seq_before(self, queue: OpenQueue, time_us: int) -> int:
        """The last message that is older than everything created at `time_us` or later."""
        for record in queue.log.read_records(queue.log.first_seq):
            if record.header.created_max_us >= time_us:
                created = StoredRecord(*record.tag_and_batch()).created_us
                place = next(place for place, created_us in enumerate(created) if created_us >= time_us)
                return record.header.first_seq + place - 1
        return queue.log.next_seq - 1

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
            partition_id = ready.first(self._clock.now_us())
            if partition_id is None:
                return
            yield partition_id

    def ready(self, queue: OpenQueue, group: Group) -> ReadyList:
        if group.ready is None:
            rows = self._database.all(
                "SELECT p.id FROM partitions p LEFT JOIN states s ON s.partition_id = p.id AND s.group_id = ? "
                "WHERE p.queue_id = ? AND p.last_seq > max(coalesce(s.cursor_seq, ?), p.floor_seq) ORDER BY p.last_seq",
                (group.group_id, queue.queue_id, group.start_seq),
            )
            group.ready = ReadyList(row[0] for row in rows)
        return group.ready

    def _claim(
        self, queue: OpenQueue, group: Group, partition_id: int, request: PopRequest, lease_id: str, batch: int
    ) -> list[Message]:
        options, now_us, ready = queue.info.options, self._clock.now_us(), self.ready(queue, group)
        partition = self.partition(partition_id)
        window = options.window_buffer_seconds
        if window and not delivery.is_due(partition.newest_us, window, now_us=now_us):
            ready.put_to_sleep(partition_id, partition.newest_us + window * _SECOND_US)
            return []
        state = self.state(group, partition)
        if state.is_leased_at(now_us):
            ready.put_to_sleep(partition_id, state.lease_until_us)
            return []
        while True:
            fresh, due_us = self._fresh(queue, partition, state, options.delayed_processing_seconds, batch)
            taken = delivery.claim(
                state,
                [Candidate(m.seq, m.transaction_id, m.created_us) for m in fresh],
                options,
                now_us=now_us,
                batch=batch,
                lease_id=lease_id,
                auto_ack=request.auto_ack,
            )
            if taken is None:
                self._rest(ready, partition, state, due_us)
                return []
            self.save(group, partition_id, taken.state)
            known = {message.seq: message for message in fresh}
            wanted = [seq for seq, _ in taken.delivered] + [letter.seq for letter in taken.dead]
            known |= self._messages(queue, partition, [seq for seq in wanted if seq not in known])
            self._bury(queue, partition_id, group.name, taken.dead, known)
            state = taken.state
            if taken.delivered:
                break
            # Everything in reach was dead; behind it there may be something alive.
        self._after_claim(ready, partition, state)
        return [known[seq]._replace(attempts=attempts) for seq, attempts in taken.delivered]

    def _after_claim(self, ready: ReadyList, partition: Partition, state: DeliveryState) -> None:
        if state.lease_id:
            ready.put_to_sleep(partition.partition_id, state.lease_until_us)
        else:
            self._rest(ready, partition, state, 0, served=True)

    def _rest(
        self, ready: ReadyList, partition: Partition, state: DeliveryState, visible_us: int, *, served: bool = False
    ) -> None:
        """Where a partition goes that nobody holds: asleep until its time, behind the others, or off the list."""
        held_up = [p.not_before_us for p in state.pending if not p.is_finished]
        if held_up and held_up[0] > self._clock.now_us():
            ready.put_to_sleep(partition.partition_id, held_up[0])
        elif visible_us:
            ready.put_to_sleep(partition.partition_id, visible_us)
        elif held_up or (served and state.last_seen_seq() < partition.last_seq):
            ready.rotate(partition.partition_id)
        else:
            ready.drop(partition.partition_id)

    def partition(self, partition_id: int) -> Partition:
        row = self._database.one(
            "SELECT id, name, last_seq, newest_us, floor_seq, pushed FROM partitions WHERE id = ?", (partition_id,)
        )
        return Partition(*row)

    def state(self, group: Group, partition: Partition) -> DeliveryState:
        row = self._database.one(
            "SELECT state FROM states WHERE group_id = ? AND partition_id = ?", (group.group_id, partition.partition_id)
        )
        if row is None:
            return DeliveryState(max(group.start_seq, partition.floor_seq))
        return delivery.without_gone(delivery.decode_state(row[0]), lambda seq: seq > partition.floor_seq)

    def save(self, group: Group, partition_id: int, state: DeliveryState) -> None:
        self._database.do(
            "INSERT OR REPLACE INTO states (group_id, partition_id, cursor_seq, lease_id, state) "
            "VALUES (?, ?, ?, ?, ?)",
            (group.group_id, partition_id, state.cursor_seq, state.lease_id, delivery.encode_state(state)),
        )

    def _fresh(
        self, queue: OpenQueue, partition: Partition, state: DeliveryState, delay: int, batch: int
    ) -> tuple[list[Message], int]:
        """Messages that the group never had, at most `batch`; and when the first one that is too young is due."""
        now_us = self._clock.now_us()
        seq = max(state.last_seen_seq(), partition.floor_seq)
        found: list[Message] = []
        while len(found) < batch and seq < partition.last_seq:
            blocks = self._index.blocks_after(partition.partition_id, seq, _BLOCKS_AT_ONCE)
            if not blocks:
                break
            for block in blocks:
                record = self._index.record(queue, block)
                for place in record.places(partition.name, block.first_seq, block.last_seq, block.messages):
                    if record.first_seq + place <= seq:
                        continue
                    if delay and not delivery.is_due(record.created_us[place], delay, now_us=now_us):
                        return found, record.created_us[place] + delay * _SECOND_US
                    found.append(message_of(queue, partition.partition_id, record, place))
                    if len(found) >= batch:
                        return found, 0
                seq = max(seq, block.last_seq)
        return found, 0

    def _messages(self, queue: OpenQueue, partition: Partition, seqs: Sequence[int]) -> dict[int, Message]:
        found = {}
        for seq in seqs:
            (block,) = self._index.blocks_after(partition.partition_id, seq - 1, 1)
            record = self._index.record(queue, block)
            found[seq] = message_of(queue, partition.partition_id, record, seq - record.first_seq)
        return found

    def _bury(
        self,
        queue: OpenQueue,
        partition_id: int,
        group: str,
        dead: Sequence[DeadLetter],
        messages: dict[int, Message],
    ) -> None:
        for letter in dead:
            if not letter.is_dropped:
                self._letters.add(queue, partition_id, group, letter, messages[letter.seq])

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        """Answers to the same partition under the same lease are judged together, in their order."""
        together: dict[tuple[str, str, str], list[int]] = {}
        for place, acknowledgement in enumerate(acknowledgements):
            together.setdefault(acknowledgement[:3], []).append(place)
        outcomes: list[Acknowledged | None] = [None] * len(acknowledgements)
        for (wire_id, group, lease_id), places in together.items():
            answers = [acknowledgements[place].answer for place in places]
            for place, outcome in zip(places, self._answer(wire_id, group, lease_id, answers), strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def _answer(
        self, wire_id: str, group_name: str, lease_id: str, answers: Sequence[delivery.Answer]
    ) -> list[Acknowledged]:
        found = self._queues.of_wire_id(wire_id)
        group = found[0].groups.get(group_name) if found else None
        row = found and self._database.one("SELECT queue_id FROM partitions WHERE id = ?", (found[1],))
        if found is None or group is None or not row or row[0] != found[0].queue_id:
            refused = [Answered(answer.transaction_id, False, delivery.NOT_IN_LEASE) for answer in answers]
            return [Acknowledged(answered, "", "") for answered in refused]
        queue, partition_id = found
        partition = self.partition(partition_id)
        before = self.state(group, partition)
        answered, dead, state = delivery.acknowledge(
            before, lease_id, answers, queue.info.options, now_us=self._clock.now_us()
        )
        if state is not before:
            self.save(group, partition_id, state)
            if dead:
                known = self._messages(queue, partition, [letter.seq for letter in dead])
                self._bury(queue, partition_id, group_name, dead, known)
            if not state.lease_id:
                self._rest(self.ready(queue, group), partition, state, 0, served=True)
        return [Acknowledged(outcome, queue.info.name, partition.name) for outcome in answered]

    def extend(self, lease_id: str, seconds: int) -> int | None:
        now_us = self._clock.now_us()
        until = None
        for group_id, partition_id, raw in self._database.all(
            "SELECT group_id, partition_id, state FROM states WHERE lease_id = ?", (lease_id,)
        ):
            state = delivery.decode_state(raw)
            if not lease_id or not state.is_leased_at(now_us):
                continue
            state = delivery.extended(state, now_us=now_us, seconds=seconds)
            queue_id, name = self._database.one("SELECT queue_id, name FROM groups WHERE id = ?", (group_id,))
            queue = self._queues.by_id[queue_id]
            self.save(queue.groups[name], partition_id, state)
            self.ready(queue, queue.groups[name]).put_to_sleep(partition_id, state.lease_until_us)
            until = max(until or 0, state.lease_until_us)
        return until


def message_of(queue: OpenQueue, partition_id: int, record: StoredRecord, place: int) -> Message:
    return Message(
        seq=record.first_seq + place,
        queue=queue.info.name,
        partition=record.partitions[place],
        partition_id=queue.wire_id(partition_id),
        transaction_id=record.ids[place],
        trace_id=record.traces[place],
        created_us=record.created_us[place],
        payload=record.payload(place),
        headers=record.headers[place].encode(),
        is_binary=bool(record.flags[place] & PAYLOAD_IS_BINARY),
    )
