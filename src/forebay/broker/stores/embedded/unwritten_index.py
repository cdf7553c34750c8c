"""The end of the index: what the logs hold and SQLite does not know yet.

Every partition of a record has a row in the index. Messages that come one by one to many partitions touch as many pages
of SQLite, each of which is written whole: more than a hundred times what a row is. So rows wait here, and go there
together, in the order of the pages: when something has to be looked up, or when there are many.

Nothing is lost with it. Where SQLite's index ends is written with it, and what is behind that is read from the logs
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from forebay.broker.stores.embedded.limits import EmbeddedLimits

Share = Sequence[int]
"""Of one partition in a record: first and last seq, messages, bytes."""

Span = tuple[int, int, int]
"""Neighbours in a record that are of one partition: which, how many, and their bytes."""


class Change(NamedTuple):
    """What several records mean for a partition."""

    last_seq: int
    newest_us: int
    messages: int
    size: int


class UnwrittenIndex:
    def __init__(self, limits: EmbeddedLimits) -> None:
        self._limits = limits
        self.blocks: list[tuple[int, int, int, int, int, int, int]] = []
        """Partition, first and last seq, messages, messages of the tail before them, seq and position of the record."""
        self.changes: dict[int, Change] = {}
        """By partition."""
        self.indexed: dict[int, int] = {}
        """By queue, the last seq that is in here."""
        self._messages = 0
        self._size = 0

    @property
    def is_long(self) -> bool:
        limits = self._limits
        return (
            len(self.blocks) >= limits.unwritten_shares_max
            or self._messages >= limits.unwritten_messages_max
            or self._size >= limits.unwritten_bytes_max
        )

    def add(self, queue_id: int, record_seq: int, position: int, shares: Mapping[int, Share], created_us: int) -> None:
        """A record, by each partition's share of it."""
        changes, blocks = self.changes, self.blocks
        for partition_id, (low, high, messages, size) in shares.items():
            before = changes.get(partition_id) or Change(0, 0, 0, 0)
            blocks.append((partition_id, low, high, messages, before.messages, record_seq, position))
            changes[partition_id] = Change(
                high, max(before.newest_us, created_us), before.messages + messages, before.size + size
            )
            self._messages += messages
            self._size += size
        self.indexed[queue_id] = max(high for _, high, _, _ in shares.values())


def spans_of(partition_ids: Sequence[int], sizes: Iterable[int]) -> list[Span]:
    """Of messages, one partition and one size each."""
    count, first = len(partition_ids), partition_ids[0]
    if first == partition_ids[-1] and partition_ids.count(first) == count:
        return [(first, count, sum(sizes))]
    left = iter(sizes)
    lengths = [(partition_id, len(list(run))) for partition_id, run in groupby(partition_ids)]
    return [(partition_id, length, sum(islice(left, length))) for partition_id, length in lengths]


def shares_of(first_seq: int, spans: Iterable[Span]) -> dict[int, list[int]]:
    """For each partition its first and last seq in a record, how many messages it has there, and their bytes."""
    shares: dict[int, list[int]] = {}
    seq = first_seq
    for partition_id, length, size in spans:
        share = shares.setdefault(partition_id, [seq, 0, 0, 0])
        seq += length
        share[1] = seq - 1
        share[2] += length
        share[3] += size
    return shares
