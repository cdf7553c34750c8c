"""Leases that were lost, given out again as they were: all that one covers, of all its partitions, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from forebay.broker import delivery
from forebay.broker.delivery import Candidates, Claim
from forebay.broker.message_columns import columns_of
from forebay.broker.messages import Message, Popped, PopRequest
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.fetching import RecordLost
from forebay.broker.stores.embedded.index import Partition
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Group, OpenQueue
from forebay.clock import Clock

if TYPE_CHECKING:
    from forebay.broker.stores.embedded.popping import Popper


class _Share(NamedTuple):
    """What one partition has of it."""

    partition: Partition
    claim: Claim
    finished: int
    """How many messages of the partition were finished before."""
    messages: dict[int, Message]

    def delivered(self) -> list[Message]:
        return [attempted(self.messages[seq], attempts) for seq, attempts in self.claim.delivered]


class WholeLeases:
    def __init__(self, popper: Popper, database: Database, clock: Clock) -> None:
        self._popper = popper
        self._database = database
        self._clock = clock

    def lost_lease(self, queue: OpenQueue, group: Group, partition_id: int) -> str:
        """The lease on the partition, if it ended with messages unanswered."""
        row = self._database.one(query("state_lease"), (group.group_id, partition_id))
        if not row or not row[0]:  # as of nearly all that a pop looks at: their states need not be read twice
            return ""
        _, state = self._popper.state_of(queue, group, partition_id)
        return delivery.lost_lease(state, queue.info.options, self._clock.now_us())

    def claim(self, queue: OpenQueue, group: Group, lost: str, request: PopRequest, lease_id: str) -> Popped:
        found = self._database.all(query("partitions_of_lease"), (lost, group.group_id))
        numbers = sorted(number for (number,) in found if self.lost_lease(queue, group, number) == lost)
        now_us = self._clock.now_us()  # the new lease ends at one moment in all its partitions
        shares = [self._share(queue, group, number, request, lease_id, now_us) for number in numbers]
        messages = [message for share in shares for message in share.delivered()]
        if request.check is not None:
            request.check(messages)
        for share in shares:
            self._write(queue, group, share)
        return Popped(lease_id, columns_of(messages), sum(bool(share.claim.taken) for share in shares))

    def _share(
        self, queue: OpenQueue, group: Group, partition_id: int, request: PopRequest, lease_id: str, now_us: int
    ) -> _Share:
        popper, options = self._popper, queue.info.options
        while True:
            try:
                partition, state = popper.state_of(queue, group, partition_id)
                finished = state.finished_count()
                if options.ttl_seconds:
                    state = popper.without_expired(queue, partition, state, now_us)
                taken = delivery.claim(
                    state,
                    Candidates(),
                    options,
                    group=group.name,
                    now_us=now_us,
                    batch=len(state.pending),
                    lease_id=lease_id,
                    auto_ack=request.auto_ack,
                    lease_seconds=request.lease_seconds,
                    is_whole=True,
                ) or Claim((), (), state)
                wanted = [seq for seq, _ in taken.delivered] + [letter.seq for letter in taken.dead]
                return _Share(partition, taken, finished, popper.fetcher.by_seq(queue, partition, wanted))
            except RecordLost:
                continue  # it is noted by now, and the state without it

    def _write(self, queue: OpenQueue, group: Group, share: _Share) -> None:
        popper, state, partition_id = self._popper, share.claim.state, share.partition.partition_id
        popper.states.save(group, partition_id, state)
        popper.note_finished(queue, group, share.partition, state.finished_count() - share.finished)
        popper.bury(queue, partition_id, group.name, share.claim.dead, share.messages)
        popper.rest(popper.ready(queue, group), share.partition, state, is_served=True)


def attempted(message: Message, attempts: int) -> Message:
    return message if message.attempts == attempts else replace(message, attempts=attempts)
