"""Groups: their lag, where they stand, and forgetting them."""

from __future__ import annotations

from forebay.broker.delivery import DeliveryState
from forebay.broker.overview import GroupLag, SeekPreview, SeekTarget
from forebay.clock import SECOND_US
from forebay.testing.memory_store.contents import Contents, StoredGroup, StoredQueue, seq_before


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
            dead_letters=sum(
                letter.group == name and letter.message.queue == queue.info.name for letter in self._letters.values()
            ),
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
            cursor = _cursor_at(found, target)
            passed = sum(seq <= cursor for seq in place.messages)
            place.states[group] = DeliveryState(cursor, finished=passed)
        self._wake(queue, len(chosen))
        return len(chosen)

    async def preview_seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> SeekPreview:
        found, now_us = self._existing(queue), self._clock.now_us()
        chosen = [p for name, p in found.partitions.items() if partition in (None, name)]
        cursor, is_new = _cursor_at(found, target), group not in found.groups
        after = {seq for place in chosen for seq in place.messages if seq > cursor}
        if is_new:
            before = {seq for place in chosen for seq in place.messages}
            leased = 0
        else:
            before = {message.seq for place in chosen for message in found.waiting(place, group)}
            leased = sum(found.state(place, group).leased_count(now_us) for place in chosen)
        return SeekPreview(
            from_seq=cursor + 1,
            is_new=is_new,
            partitions=len(chosen),
            waiting=len(before),
            waiting_after=len(after),
            skipped=len(before - after),
            repeated=len(after - before),
            leased=leased,
        )

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


def _cursor_at(queue: StoredQueue, target: SeekTarget) -> int:
    if target.seq is not None:
        return max(target.seq - 1, 0)
    if target.time_us is not None:
        return seq_before(queue.messages(), target.time_us, queue.next_seq)
    return queue.next_seq - 1
