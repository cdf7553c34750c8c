"""Calls of the holders of leases: answers, extensions, and claims that did not reach their client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from forebay.broker import delivery
from forebay.broker.delivery import Answered, DeadLetter, DeliveryState
from forebay.broker.messages import Acknowledged, Acknowledgement, Completed, Message, judged_together
from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import RecordLost
from forebay.broker.stores.embedded.index import Partition
from forebay.broker.stores.embedded.lease_rows import FreshLease
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Group, OpenQueue, Queues
from forebay.clock import Clock
from forebay.model.queue import DEFAULT_GROUP


class Acknowledging:
    def __init__(self, database: Database, queues: Queues, popper: Popper, clock: Clock) -> None:
        self._database = database
        self._queues = queues
        self._popper = popper
        self._clock = clock
        self.freed: set[str] = set()
        """Queues of which a partition may be claimed again, at once or after a delay. The store tells, and forgets."""

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        outcomes: dict[int, Acknowledged] = {}
        together = judged_together(acknowledgements)
        for (wire_id, group, lease), places in together.items():
            answers = [acknowledgements[place].answer for place in places]
            judged = self._answer(wire_id, group, lease, answers)
            if len(together) == 1:
                return judged
            outcomes |= zip(places, judged, strict=True)
        return [outcomes[place] for place in range(len(acknowledgements))]

    def _answer(
        self, wire_id: str, group_name: str, lease: delivery.Lease, answers: Sequence[delivery.Verdict]
    ) -> list[Acknowledged]:
        found = self._found(wire_id, group_name)
        if found is None:
            refused = [Answered(answer.transaction_id, False, delivery.LEASE_INVALID) for answer in answers]
            return [Acknowledged(answered, "", "") for answered in refused]
        queue, group, partition, before = found
        answered, dead, state = delivery.acknowledge(
            before, lease, answers, queue.info.options, now_us=self._clock.now_us()
        )
        if state is not before:
            if dead:
                try:
                    known = self._popper.fetcher.by_seq(queue, partition, [letter.seq for letter in dead])
                except RecordLost:
                    return self._answer(wire_id, group_name, lease, answers)
                self._popper.bury(queue, partition.partition_id, group_name, dead, known)
            self.change(queue, group, partition, state)
            self._popper.note_finished(queue, group, partition, state.finished_count() - before.finished_count())
        return list(map(Acknowledged, answered, repeat(queue.info.name), repeat(partition.name)))

    def _found(self, wire_id: str, group_name: str) -> tuple[OpenQueue, Group, Partition, DeliveryState] | None:
        """What an answer is about; None where there is no such thing."""
        queue, partition_id = self._queues.of_wire_id(wire_id) or (None, 0)
        group = queue.groups.get(group_name) if queue else None
        found = self._popper.states.partition_and_state(group, partition_id) if group else None
        if queue is None or group is None or found is None or found[0].queue_id != queue.queue_id:
            return None
        return queue, group, *found

    def take_back(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """The database has forgotten them: put their partitions where they were."""
        for wire_id, group_name, _ in judged_together(acknowledgements):
            found = self._found(wire_id, group_name)
            if found is not None and found[1].ready is not None:
                self._popper.rest(found[1].ready, *found[2:], is_served=True)

    def change(self, queue: OpenQueue, group: Group, partition: Partition, state: DeliveryState) -> None:
        """Write a state that a call has changed, and note whether other consumers may come now."""
        self._popper.states.save(group, partition.partition_id, state)
        has_more = self._popper.rest(self._popper.ready(queue, group), partition, state, is_served=True)
        if has_more and (not state.lease_id or state.yielded_us):
            self.freed.add(queue.info.name)

    def _rows(self, lease_id: str) -> Iterator[tuple[OpenQueue, Group, Partition, bytes]]:
        """What was claimed under the lease, as its rows have it."""
        for *columns, encoded, name in self._database.all(query("partitions_held"), (lease_id,)):
            partition = Partition(*columns)
            queue = self._queues.by_id[partition.queue_id]
            yield queue, queue.groups[name], partition, encoded

    def _held(self, lease_id: str) -> Iterator[tuple[OpenQueue, Group, Partition, DeliveryState]]:
        """What is held under the lease."""
        now_us = self._clock.now_us()
        for queue, group, partition, encoded in self._rows(lease_id):
            state = self._popper.states.decoded(group, partition, encoded)
            if state.lease_id == lease_id and state.is_leased_at(now_us):
                yield queue, group, partition, state

    def complete(self, lease_id: str) -> Completed | None:
        messages = 0
        partitions = []
        for queue, group, partition, encoded in self._rows(lease_id):
            done = self._completed(group, partition, encoded, lease_id)
            if done is not None:
                count, after = done
                self.change(queue, group, partition, after)
                self._popper.note_finished(queue, group, partition, count)
                messages += count
                partitions.append((queue.info.name, partition.name))
        return Completed(messages, partitions) if partitions else None

    def _completed(
        self, group: Group, partition: Partition, encoded: bytes, lease_id: str
    ) -> tuple[int, DeliveryState] | None:
        """How many messages that were and the state after it; None if the lease is over."""
        now_us = self._clock.now_us()
        short = lease_rows.decode(encoded) if not partition.has_deleted else None
        if isinstance(short, FreshLease) and partition.floor_seq <= short.cursor_seq:
            return (short.count, short.completed()) if short.is_held(lease_id, now_us) else None
        state = self._popper.states.decoded(group, partition, encoded)
        is_held = state.lease_id == lease_id and state.is_leased_at(now_us)
        return delivery.completed(state) if is_held else None

    def extend(self, lease_id: str, seconds: int) -> int | None:
        now_us = self._clock.now_us()
        until = None
        for queue, group, partition, state in self._held(lease_id):
            longer = delivery.extended(state, now_us=now_us, seconds=seconds)
            self.change(queue, group, partition, longer)
            until = max(until or 0, longer.lease_until_us)
        return until

    def release(self, lease_id: str, *, as_whole: bool) -> bool:
        held = list(self._held(lease_id))
        now_us = self._clock.now_us()
        for queue, group, partition, state in held:
            after = delivery.given_back(state, now_us=now_us) if as_whole else delivery.released(state)
            self.change(queue, group, partition, after)
        return bool(held)

    def bury_for_all(self, message: Message, reason: str) -> int:
        """Write a dead letter for each group that has not finished the message; returns how many."""
        queue, partition_id = self._queues.of_wire_id(message.partition_id) or (None, 0)
        if queue is None:
            return 0
        partition = self._popper.states.partition(partition_id)
        groups = {
            name: delivery.open_attempts(self._popper.states.state(group, partition), message.seq)
            for name, group in queue.groups.items()
        }
        letters = 0
        for name, attempts in (groups or {DEFAULT_GROUP: 0}).items():
            if attempts is not None:
                letter = DeadLetter(message.seq, attempts, reason)
                self._popper.bury(queue, partition_id, name, [letter], {message.seq: message})
                letters += 1
        return letters

    def forget_deleted(self, queue: OpenQueue, partition_id: int) -> None:
        """A message of the partition was deleted: no consumer holds or awaits it any longer."""
        partition = self._popper.states.partition(partition_id)
        queue.waiting = None
        for group in queue.groups.values():
            row = self._database.one(query("state_find"), (group.group_id, partition_id))
            state = self._popper.states.state(group, partition)
            if row is not None and delivery.encode_state(state) != row[0]:
                self.change(queue, group, partition, state)
