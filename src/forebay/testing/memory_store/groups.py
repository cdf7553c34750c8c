"""Groups: their lag, where they stand, and forgetting them."""

from __future__ import annotations

from forebay.broker.delivery import DeliveryState
from forebay.broker.overview import GroupLag, SeekTarget
from forebay.testing.memory_store.contents import SECOND_US, Contents, StoredGroup, StoredQueue, seq_before


class Groups(Contents):
    async def groups(self, queue: str | None = None) -> list[GroupLag]:
        return [
            self._lag(found, name, group)
            for own_name, found in sorted(self._queues.items())
            if queue in (None, own_name)
            for name, group in sorted(found.groups.items())
        ]

    def _lag(self, queue: StoredQueue, name: str, group: StoredGroup) -> GroupLag:
        now_us = self._clock.now_us()
        waiting = [left for p in queue.partitions.values() if (left := queue.waiting(p, name))]
        oldest_us = min((left[0].created_us for left in waiting), default=now_us)
        states = [queue.state(partition, name) for partition in queue.partitions.values()]
        return GroupLag(
            group=name,
            queue=queue.info.name,
            subscription_mode=group.mode,
            subscription_from_us=group.from_us,
            created_us=group.created_us,
            partitions=len(queue.partitions),
            partitions_with_lag=len(waiting),
            lag_messages=sum(map(len, waiting)),
            lag_seconds=(now_us - oldest_us) / SECOND_US,
            leased=sum(state.leased_count(now_us) for state in states),
            last_active_us=group.last_active_us,
        )

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        found = self._existing(queue)
        if group not in found.groups:
            now_us = self._clock.now_us()
            found.groups[group] = StoredGroup(0, "all", 0, now_us, now_us)
        if partition is None and target.seq is not None:
            # For partitions that are made later, where the seq is still to come.
            found.groups[group].start_seq = max(target.seq - 1, 0)
        chosen = [p for name, p in found.partitions.items() if partition in (None, name)]
        for place in chosen:
            messages = list(place.messages.values())
            cursor = found.next_seq - 1
            if target.seq is not None:
                cursor = target.seq - 1
            elif target.time_us is not None:
                cursor = seq_before(messages, target.time_us, found.next_seq)
            passed = sum(message.seq <= cursor for message in messages)
            place.states[group] = DeliveryState(cursor, finished=passed)
        self._wake(queue, len(chosen))
        return len(chosen)

    async def delete_group(self, group: str, queue: str | None) -> int:
        known = 0
        for found in self._queues.values():
            if queue in (None, found.info.name):
                found.groups.pop(group, None)
                known += len([p for p in found.partitions.values() if p.states.pop(group, None) is not None])
        return known

    async def expire_groups(self, seconds: float) -> int:
        now_us = self._clock.now_us()
        idle = [
            (name, queue.info.name)
            for queue in self._queues.values()
            for name, group in queue.groups.items()
            if group.last_active_us < now_us - round(seconds * SECOND_US)
            and not any(queue.state(p, name).is_leased_at(now_us) for p in queue.partitions.values())
        ]
        for name, queue_name in idle:
            await self.delete_group(name, queue_name)
        return len(idle)
