"""How far a group is in a partition, and what is gone of a queue, for other rooms' work: in the store's thread, or
beside it.

Only what is in the index counts: a message that is in the log and not indexed yet is not passed, whatever the group's
cursor says. So the answer may be too low for a moment, and is never too high.
"""

from __future__ import annotations

from forebay.broker.room_work import DeadSeqs, Gaps, GroupEdge, Passed, QueueGaps
from forebay.broker.stores.embedded.partition_lag import Execute, PartitionLag
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Queues

_EDGE = query("group_edge")
_DEAD = query("dead_letters_between")
_GAPS = query("queue_gaps")


def group_edge(execute: Execute, queues: Queues, wanted: GroupEdge, now_us: int) -> Passed | None:
    row = execute(_EDGE, wanted._asdict()).fetchone()
    queue = queues.by_name.get(wanted.queue)
    if row is None or queue is None:
        return None
    queue_id, indexed_seq, group_id, partition_id = row
    if group_id is None:
        return Passed(queue_id, None)
    if partition_id is None:
        return Passed(queue_id, indexed_seq + 1)
    lag = PartitionLag(execute, now_us=now_us).of(queue.log, group_id, partition_id)
    return Passed(queue_id, indexed_seq + 1 if lag.oldest_seq is None else min(lag.oldest_seq, indexed_seq + 1))


def dead_seqs(execute: Execute, wanted: DeadSeqs) -> list[int]:
    return [seq for (seq,) in execute(_DEAD, wanted._asdict()).fetchall()]


def gaps_of(execute: Execute, queues: Queues, wanted: QueueGaps) -> Gaps | None:
    queue = queues.by_name.get(wanted.queue)
    if queue is None:
        return None
    values = {"queue_id": queue.queue_id, "first_seq": wanted.first_seq, "last_seq": wanted.last_seq}
    removed_seq, lost = execute(_GAPS, values).fetchone()
    return Gaps(removed_seq, min(lost, max(0, wanted.last_seq - wanted.first_seq + 1)))
