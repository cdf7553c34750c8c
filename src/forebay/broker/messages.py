"""What passes between the broker and a store: messages on their way in, on their way out, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from forebay.broker.delivery import Answered, Lease, Verdict
from forebay.model.queue import DEFAULT_GROUP

ANSWER_BYTES_MAX = 64 << 20
"""Of payloads that are given out at once. An answer ends with the message that reaches it: one is always given."""


QUEUED, DUPLICATE = "queued", "duplicate"
FAILED, UNKNOWN = "failed", "unknown"
"""Of messages of a request that was accepted in part: they were not stored; or that is not known."""


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """`queued`: stored under `seq`. `duplicate`: `seq` is the message that was there before.

    It is for `count` neighbours of a run, whose seqs follow each other. If they are `failed` or `unknown` the receipt
    is the reason; they have no seqs then.
    """

    status: str
    seq: int
    partition_id: str
    receipt: str
    count: int = 1

    def each(self) -> list[Pushed]:
        """The same, message by message."""
        seqs = range(self.seq, self.seq + self.count) if self.seq else repeat(0, self.count)
        return [Pushed(self.status, seq, self.partition_id, self.receipt) for seq in seqs]


class PopRequest(NamedTuple):
    """Which messages, for whom, and how many. Either a queue, or a namespace and/or a task."""

    queue: str = ""
    partition: str | None = None
    namespace: str = ""
    task: str = ""
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    subscription_mode: str = "all"
    """For a group that does not exist yet: `all`, `new`, or `from` together with `subscription_from_us`."""
    subscription_from_us: int = 0
    bytes_max: int = ANSWER_BYTES_MAX
    """Of payloads; the message that reaches it is the last one."""
    lease_seconds: int = 0
    """How long the lease lasts; 0 for as long as the queue says."""
    whole_leases: bool = False
    """Whether what a lost lease covered is given out again as it was: all of it that is not answered, of all its
    partitions, and nothing else, whatever the limits above are. A pop that has messages already ends there."""
    check: Callable[[Sequence[Message]], None] | None = None
    """Is shown what the pop is about to claim. If it raises, so does the pop, and nothing is claimed."""

    def after(self, messages: int, size_bytes: int) -> PopRequest:
        """What is left of it when so much was taken."""
        return self._replace(batch=self.batch - messages, bytes_max=self.bytes_max - size_bytes)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message on its way out."""

    seq: int
    queue: str
    partition: str
    partition_id: str
    transaction_id: str
    trace_id: str
    created_us: int
    payload: bytes
    headers: bytes
    is_binary: bool
    attempts: int = 0


class Popped(NamedTuple):
    """Messages of one or more partitions under one lease; empty when there is nothing now."""

    lease_id: str
    messages: Sequence[Message]
    """`message_columns` where a store has them as columns."""
    partitions_claimed: int


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    partition_id: str
    group: str
    lease: Lease
    answer: Verdict


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    answered: Answered
    queue: str
    partition: str


def judged_together(acknowledgements: Sequence[Acknowledgement]) -> dict[tuple[str, str, Lease], list[int]]:
    """Partition, group and lease, each with the places of the answers for it: those are judged in one step."""
    keys = [(one.partition_id, one.group, one.lease) for one in acknowledgements]
    if keys and keys.count(keys[0]) == len(keys):
        return {keys[0]: list(range(len(keys)))}
    together: dict[tuple[str, str, Lease], list[int]] = {}
    for place, key in enumerate(keys):
        together.setdefault(key, []).append(place)
    return together


class Completed(NamedTuple):
    """A lease that was finished as a whole."""

    messages: int
    """How many were held under it, and are completed now."""
    partitions: list[tuple[str, str]]
    """The queue and the name of each partition that it covered."""


def count_within(sizes: Iterable[int], bytes_max: float) -> int:
    """How many from the front on are given out: the one with which they reach `bytes_max` bytes is the last."""
    count = total = 0
    for size in sizes:
        if total >= bytes_max:
            break
        total += size
        count += 1
    return count


class TransactionOutcome(NamedTuple):
    """All or nothing: when `error` is set, nothing of it happened."""

    pushed: Sequence[Pushed]
    acknowledged: list[Acknowledged]
    error: str = ""
