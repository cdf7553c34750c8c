"""The way out: claims and answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from forebay.broker import delivery
from forebay.broker.delivery import Answered, DeliveryState
from forebay.broker.message_columns import columns_of
from forebay.broker.messages import (
    Acknowledged,
    Acknowledgement,
    Completed,
    Message,
    Popped,
    PopRequest,
    count_within,
    judged_together,
)
from forebay.broker.queue_rules import visible_count, visible_us, window_end_us
from forebay.clock import SECOND_US
from forebay.testing.memory_store.contents import (
    Contents,
    StoredGroup,
    StoredPartition,
    StoredQueue,
    seq_before,
)


class Delivering(Contents):
    async def pop(self, request: PopRequest) -> Popped:
        lease_id = str(uuid.uuid4())
        messages: list[Message] = []
        claimed = 0
        before: list[tuple[StoredPartition, DeliveryState]] = []
        for queue, partition in self._places(request):
            lost = self._lost_lease(queue, partition, request)
            if lost and messages:
                break
            if lost and (whole := self._claim_whole(queue, lost, request, lease_id)).messages:
                return whole
            left = request.after(len(messages), sum(len(m.payload) for m in messages))
            if claimed >= request.partitions or left.batch <= 0 or left.bytes_max <= 0:
                break
            before.append((partition, queue.state(partition, request.group)))
            try:
                found = self._claim(queue, partition, left, lease_id)
            except Exception:
                for other, state in before:
                    other.states[request.group] = state
                raise
            messages += found
            claimed += bool(found)
        return Popped(lease_id if messages and not request.auto_ack else "", messages, claimed)

    def _lost_lease(self, queue: StoredQueue, partition: StoredPartition, request: PopRequest) -> str:
        if not request.whole_leases:
            return ""
        return delivery.lost_lease(queue.state(partition, request.group), queue.info.options, self._clock.now_us())

    def _claim_whole(self, queue: StoredQueue, lost: str, request: PopRequest, lease_id: str) -> Popped:
        partitions = [one for one in queue.partitions.values() if self._lost_lease(queue, one, request) == lost]
        before = [queue.state(partition, request.group) for partition in partitions]
        try:
            found = [self._claim(queue, one, request, lease_id, is_whole=True) for one in partitions]
        except Exception:
            for partition, state in zip(partitions, before, strict=True):
                partition.states[request.group] = state
            raise
        return Popped(lease_id, [message for own in found for message in own], sum(map(bool, found)))

    def _places(self, request: PopRequest) -> Iterator[tuple[StoredQueue, StoredPartition]]:
        """Partitions that the pop may take from: queues by priority, partitions by their oldest waiting message."""
        if request.queue and request.subscription_mode != "all":
            self._made(request.queue, "", "")
        for queue in self._chosen(request):
            self._join(queue, request)
            for _, partition in sorted(self._waiting(queue, request), key=lambda found: found[0]):
                yield queue, partition

    def _waiting(self, queue: StoredQueue, request: PopRequest) -> list[tuple[int, StoredPartition]]:
        """Partitions with something for the group, each with the seq of its oldest."""
        return [
            (left[0].seq, partition)
            for partition in queue.partitions.values()
            if request.partition in (None, partition.name) and (left := queue.waiting(partition, request.group))
        ]

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        now_us = self._clock.now_us()
        times = [
            self._due_us(queue, partition, request.group, now_us)
            for queue in self._chosen(request)
            if request.group in queue.groups
            for _, partition in self._waiting(queue, request)
        ]
        return max(min(times) - now_us, 0) / SECOND_US if times else None

    def _due_us(self, queue: StoredQueue, partition: StoredPartition, group: str, now_us: int) -> int:
        options, state = queue.info.options, queue.state(partition, group)
        due_us = delivery.due_us(state, options, now_us)
        if due_us is None:
            oldest = queue.waiting(partition, group)[0]
            due_us = visible_us(oldest.created_us, options)
        return max(due_us, window_end_us(partition.newest_us, options, now_us))

    def _join(self, queue: StoredQueue, request: PopRequest) -> None:
        """A group's first pop on a queue decides where it starts; later ones cannot change that."""
        now_us = self._clock.now_us()
        group = queue.groups.get(request.group)
        if group is not None:
            group.last_active_us = now_us
            return
        start_seq = 0
        if request.subscription_mode == "new":
            start_seq = queue.next_seq - 1
        elif request.subscription_mode == "from":
            start_seq = seq_before(queue.messages(), request.subscription_from_us, queue.next_seq)
        queue.groups[request.group] = StoredGroup(
            start_seq, request.subscription_mode, request.subscription_from_us, now_us, now_us
        )

    def _claim(
        self,
        queue: StoredQueue,
        partition: StoredPartition,
        request: PopRequest,
        lease_id: str,
        *,
        is_whole: bool = False,
    ) -> list[Message]:
        options, now_us = queue.info.options, self._clock.now_us()
        if window_end_us(partition.newest_us, options, now_us) and not is_whole:
            return []
        state = queue.state(partition, request.group)
        state = delivery.without_gone(state, partition.messages.__contains__)
        if not delivery.is_held(state, options, now_us):
            created = {m.seq: m.created_us for m in partition.messages.values()}
            state = delivery.without_gone(
                state, lambda seq: not delivery.is_expired(now_us - created.get(seq, now_us), options)
            )
        fresh = [m for m in partition.messages.values() if m.seq > state.last_seen_seq()]
        fresh = fresh[: visible_count((m.created_us for m in fresh), options, now_us)]

        def claim(batch: int) -> delivery.Claim | None:
            return delivery.claim(
                state,
                columns_of(fresh),
                options,
                group=request.group,
                now_us=now_us,
                batch=batch,
                lease_id=lease_id,
                auto_ack=request.auto_ack,
                lease_seconds=request.lease_seconds,
                is_whole=is_whole,
            )

        taken = claim(len(state.pending) if is_whole else request.batch)
        if taken is None:
            return []
        fitting = count_within((len(partition.messages[p.seq].payload) for p in taken.taken), request.bytes_max)
        taken = claim(fitting) or taken if fitting < len(taken.taken) and not is_whole else taken
        messages = [replace(partition.messages[seq], attempts=attempts) for seq, attempts in taken.delivered]
        if request.check is not None:
            request.check(messages)
        partition.states[request.group] = taken.state
        self._bury(partition, request.group, taken.dead)
        return messages

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        acknowledged = self._acknowledge(acknowledgements)
        self._tell_freed(acknowledged)
        return acknowledged

    def _acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        outcomes: dict[int, Acknowledged] = {}
        for (partition_id, group, lease), places in judged_together(acknowledgements).items():
            answers = [acknowledgements[place].answer for place in places]
            outcomes |= zip(places, self._judge(partition_id, group, lease, answers), strict=True)
        return [outcomes[place] for place in range(len(acknowledgements))]

    def _judge(
        self, partition_id: str, group: str, lease: delivery.Lease, answers: Sequence[delivery.Verdict]
    ) -> list[Acknowledged]:
        found = self._partition_of(partition_id)
        if found is None or group not in found[0].groups:
            refused = [Answered(answer.transaction_id, False, delivery.LEASE_INVALID) for answer in answers]
            return [Acknowledged(answered, "", "") for answered in refused]
        queue, partition = found
        answered, dead, state = delivery.acknowledge(
            queue.state(partition, group), lease, answers, queue.info.options, now_us=self._clock.now_us()
        )
        partition.states[group] = state
        self._bury(partition, group, dead)
        return [Acknowledged(one, queue.info.name, partition.name) for one in answered]

    def _tell_freed(self, acknowledged: Sequence[Acknowledged]) -> None:
        """Of partitions that others may claim again, at once or after a delay."""
        for name, place in {(found.queue, found.partition) for found in acknowledged if found.answered.is_accepted}:
            queue = self._queues[name]
            partition = queue.partitions[place]
            for group, state in partition.states.items():
                if (not state.lease_id or state.yielded_us) and queue.waiting(partition, group):
                    self._wake(name, 1)

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        return [self._complete(lease_id) for lease_id in lease_ids]

    def _complete(self, lease_id: str) -> Completed | None:
        messages = 0
        held = list(self._leases(lease_id))
        for queue, partition, group in held:
            count, after = delivery.completed(partition.states[group])
            messages += count
            partition.states[group] = after
            if queue.waiting(partition, group):
                self._wake(queue.info.name, 1)
        partitions = [(queue.info.name, partition.name) for queue, partition, _ in held]
        return Completed(messages, partitions) if partitions else None

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        now_us = self._clock.now_us()
        until = None
        for _, partition, group in list(self._leases(lease_id)):
            longer = delivery.extended(partition.states[group], now_us=now_us, seconds=seconds)
            partition.states[group] = longer
            until = max(until or 0, longer.lease_until_us)
        return until

    async def release(self, lease_id: str, *, as_whole: bool = False) -> bool:
        held = list(self._leases(lease_id))
        for queue, partition, group in held:
            state, now_us = partition.states[group], self._clock.now_us()
            after = delivery.given_back(state, now_us=now_us) if as_whole else delivery.released(state)
            partition.states[group] = after
            self._wake(queue.info.name, 1)
        return bool(held)
