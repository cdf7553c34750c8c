"""What a push asks and writes, as statements: its columns in the form in which PostgreSQL takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Texts
from forebay.broker.stores.postgres.queries import Statement, query
from forebay.model.push_run import PushRun, message_count

T = TypeVar("T")


class NewRun(NamedTuple):
    """`seq` and `position` are those of its first message."""

    queue_id: int
    seq: int
    partition_id: int
    position: int
    run: PushRun


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


def find_duplicates(ids: Sequence[str], partition_ids: Sequence[int]) -> Statement:
    """Of ids that producers gave, and the numbers of their partitions."""
    values: dict[str, object] = {"partition_ids": Bigints(partition_ids), "transaction_ids": Texts(ids)}
    return Statement(query("push_find_duplicates"), values)


def count_waiting(queue_id: int) -> Statement:
    return Statement(query("push_count_waiting"), {"queue_id": queue_id})


def columns_of(runs: Sequence[PushRun]) -> dict[str, object]:
    """The messages of all of them, as they are sent."""
    count = message_count(runs)
    has_traces, has_headers = any([run.trace_ids for run in runs]), any([run.headers for run in runs])  # noqa: C419
    has_binary = any([run.is_binary for run in runs])  # noqa: C419 - faster than to stop early
    return {
        "are_binary": Booleans(_each(runs, [run.is_binary for run in runs]) if has_binary else [False] * count),
        "transaction_ids": Texts(chain.from_iterable([run.transaction_ids for run in runs])),
        "trace_ids": Texts(chain.from_iterable(map(PushRun.trace_column, runs)) if has_traces else [""] * count),
        "headers": Blobs(chain.from_iterable(map(PushRun.header_column, runs)) if has_headers else [b""] * count),
        "payloads": Blobs(chain.from_iterable([run.payloads.values() for run in runs])),
    }


def _each(runs: Iterable[PushRun], values: Iterable[T]) -> Iterator[T]:
    """The value of each run, for each of its messages."""
    return chain.from_iterable([[value] * len(run.transaction_ids) for run, value in zip(runs, values, strict=True)])


def _counted(runs: Iterable[PushRun], firsts: Iterable[int]) -> Iterator[int]:
    """The number of each run, and those that follow it, for each of its messages."""
    return chain.from_iterable([range(first, first + len(run)) for run, first in zip(runs, firsts, strict=True)])


def write(
    new: Sequence[NewRun], changed: Sequence[ChangedPartition], grown: Sequence[GrownQueue], now_us: int
) -> Statement:
    queue_ids, seqs, partition_ids, positions, runs = zip(*new, strict=True)
    changed_ids, last_seqs, last_positions = zip(*changed, strict=True)
    grown_ids, next_seqs, more_bytes = zip(*grown, strict=True)
    values: dict[str, object] = {
        "now_us": now_us,
        "queue_ids": Bigints(_each(runs, queue_ids)),
        "seqs": Bigints(_counted(runs, seqs)),
        "partition_ids": Bigints(_each(runs, partition_ids)),
        "positions": Bigints(_counted(runs, positions)),
        **columns_of(runs),
        "changed_ids": Bigints(changed_ids),
        "last_seqs": Bigints(last_seqs),
        "last_positions": Bigints(last_positions),
        "grown_ids": Bigints(grown_ids),
        "next_seqs": Bigints(next_seqs),
        "more_bytes": Bigints(more_bytes),
    }
    return Statement(query("push_write"), values)
