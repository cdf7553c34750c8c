"""What a queue's options decide about messages that no consumer has yet, as pure functions of values and a time.

The rules of a claim itself (attempts, leases, time to live) are in `delivery`; these are the others. A store finds the
values, asks here, and does what it is told:

| option | decided here |
|---|---|
| `priority` | in which order a pop that covers several queues looks at them (`pop_order`) |
| `delayedProcessing` | how many messages are old enough for a delivery (`visible_count`), when one is (`visible_us`) |
| `windowBuffer` | until when a partition is left alone after its newest message (`window_end_us`) |
| `maxSize` | whether a push finds room (`refused_for_room`) |
| `encryptionEnabled` | whether a push may be stored as it is (`refused_in_clear`) |
| `retentionSeconds`, `completedRetentionSeconds`, `ttl` | before when messages are removed (`cutoffs`) |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from forebay.broker.delivery import is_due
from forebay.broker.encryption import is_sealed
from forebay.clock import SECOND_US
from forebay.errors import PayloadInClear, QueueFull
from forebay.model.queue import Queue, QueueOptions


def pop_order(queue: Queue) -> tuple[int, str]:
    """A key to sort queues by: the one of the highest priority first."""
    return -queue.options.priority, queue.name


def visible_us(created_us: int, options: QueueOptions) -> int:
    """When a message is old enough to be delivered."""
    return created_us + options.delayed_processing_seconds * SECOND_US


def visible_count(created_us: Iterable[int], options: QueueOptions, now_us: int) -> int:
    """How many from the front on are old enough. Order is kept: one that is too young holds up those behind it."""
    count = 0
    for created in created_us:
        if not is_due(created, options.delayed_processing_seconds, now_us=now_us):
            break
        count += 1
    return count


def window_end_us(newest_us: int, options: QueueOptions, now_us: int) -> int:
    """Until when a partition is left alone because its newest message came a moment ago; 0 when it is not."""
    window = options.window_buffer_seconds
    if not window or is_due(newest_us, window, now_us=now_us):
        return 0
    return newest_us + window * SECOND_US


def refused_for_room(queue: str, max_size: int, waiting: int, new: int) -> QueueFull | None:
    """`new`: messages that are not there yet; duplicates need no room, in a full queue too."""
    is_full = 0 < max_size < waiting + new and new > 0
    return QueueFull(queue, waiting, max_size) if is_full else None


def refused_in_clear(queue: str, payloads: Iterable[bytes]) -> PayloadInClear | None:
    """For a queue that is encrypted: payloads are sealed before they reach a store."""
    return None if all(map(is_sealed, payloads)) else PayloadInClear(queue)


class Cutoffs(NamedTuple):
    """Messages that were made before a time are removed; None: none are."""

    any_us: int | None
    """Finished or not."""
    finished_us: int | None
    """Those that every group has finished."""


def keeps_everything(options: QueueOptions) -> bool:
    return not (options.kept_seconds or options.completed_kept_seconds)


def cutoffs(options: QueueOptions, now_us: int) -> Cutoffs:
    kept, finished = options.kept_seconds, options.completed_kept_seconds
    return Cutoffs(
        now_us - kept * SECOND_US if kept else None,
        now_us - finished * SECOND_US if finished else None,
    )
