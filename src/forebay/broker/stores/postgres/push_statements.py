"""What a push asks and writes, as statements: its columns in the form in which PostgreSQL takes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from forebay.broker.messages import PushItem
from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Texts
from forebay.broker.stores.postgres.queries import Statement, query


class NewMessage(NamedTuple):
    queue_id: int
    seq: int
    partition_id: int
    position: int
    item: PushItem


class ChangedPartition(NamedTuple):
    partition_id: int
    last_seq: int
    last_position: int


class GrownQueue(NamedTuple):
    queue_id: int
    next_seq: int
    more_bytes: int


def lock_queues(names: Collection[str], server_id: str) -> Statement:
    return Statement(query("push_lock_queues"), {"names": Texts(sorted(names)), "server_id": server_id})


def find_partitions(wanted: Collection[tuple[str, str]], now_us: int | None) -> Statement:
    """By the names of queue and partition."""
    queues, names = Texts([queue for queue, _ in wanted]), Texts([name for _, name in wanted])
    return Statement(query("push_find_partitions"), {"queues": queues, "names": names, "now_us": now_us})


def make_partitions(missing: Collection[tuple[int, str]]) -> Statement:
    """By the number of the queue and the name of the partition."""
    queue_ids, names = Bigints([queue_id for queue_id, _ in missing]), Texts([name for _, name in missing])
    return Statement(query("push_make_partitions"), {"queue_ids": queue_ids, "names": names})


def find_duplicates(own: Sequence[PushItem], partition_ids: Sequence[int]) -> Statement:
    """Of messages with ids that producers gave, and the numbers of their partitions."""
    values: dict[str, object] = {
        "partition_ids": Bigints(partition_ids),
        "transaction_ids": Texts([item.transaction_id for item in own]),
    }
    return Statement(query("push_find_duplicates"), values)


def count_waiting(queue_id: int) -> Statement:
    return Statement(query("push_count_waiting"), {"queue_id": queue_id})


def write(
    new: Sequence[NewMessage], changed: Sequence[ChangedPartition], grown: Sequence[GrownQueue], now_us: int
) -> Statement:
    queue_ids, seqs, partition_ids, positions, items = zip(*new, strict=True)
    changed_ids, last_seqs, last_positions = zip(*changed, strict=True)
    grown_ids, next_seqs, more_bytes = zip(*grown, strict=True)
    values: dict[str, object] = {
        "now_us": now_us,
        "queue_ids": Bigints(queue_ids),
        "seqs": Bigints(seqs),
        "partition_ids": Bigints(partition_ids),
        "positions": Bigints(positions),
        "are_binary": Booleans([item.is_binary for item in items]),
        "transaction_ids": Texts([item.transaction_id for item in items]),
        "trace_ids": Texts([item.trace_id for item in items]),
        "headers": Blobs([item.headers for item in items]),
        "payloads": Blobs([item.payload for item in items]),
        "changed_ids": Bigints(changed_ids),
        "last_seqs": Bigints(last_seqs),
        "last_positions": Bigints(last_positions),
        "grown_ids": Bigints(grown_ids),
        "next_seqs": Bigints(next_seqs),
        "more_bytes": Bigints(more_bytes),
    }
    return Statement(query("push_write"), values)
