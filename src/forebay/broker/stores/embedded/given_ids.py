"""The ids that producers gave: which message of which partition has which.

An id has to be looked for before its message is stored, and to be put into the index after it. Where many ids of one
partition come together both is one step: they are put there with the seqs that their messages will get, and from how
many rows that made is seen whether all were new. If the messages cannot be stored, they are taken out again.

Ids of many partitions would dirty a page of SQLite each. They are only looked for, and noted here with the rest of the
index's end (`unwritten_index`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby, repeat

import msgspec

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query

_encode = msgspec.json.Encoder().encode
_RUN_MIN = 8
"""Where messages of one partition follow each other in runs of this length on average, their ids come together."""


class Claim(Enum):
    REFUSED = "one of the ids is there already, or stands there twice"
    NEW = "all are new, and to be noted when their messages are stored"
    INDEXED = "all were new, and are in the index"


class GivenIds:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[tuple[int, str], int] = {}

    def claim(self, first_seq: int, partition_ids: Sequence[int], ids: Sequence[str]) -> Claim:
        """For messages that will be numbered from `first_seq` on."""
        lengths = [(partition_id, len(list(run))) for partition_id, run in groupby(partition_ids)]
        if len(lengths) * _RUN_MIN > len(ids):
            are_new = self._are_new(list(zip(partition_ids, ids, strict=True)))
            return Claim.NEW if are_new else Claim.REFUSED
        self.settle()
        if self._add_runs(first_seq, lengths, ids) == len(ids):
            return Claim.INDEXED
        self.give_back(first_seq, partition_ids, ids)
        return Claim.REFUSED

    def _are_new(self, keys: Sequence[tuple[int, str]]) -> bool:
        if len(set(keys)) < len(keys) or not self._noted.keys().isdisjoint(keys):
            return False
        found = self._database.one(
            query("ids_any_there"),
            (_encode(keys).decode(),),
        )
        return found is None

    def _add_runs(self, first_seq: int, lengths: Sequence[tuple[int, int]], ids: Sequence[str]) -> int:
        """For each run of messages of one partition one statement; returns how many ids were new."""
        added = start = 0
        for partition_id, length in lengths:
            run = _encode(ids[start : start + length]).decode()
            added += self._database.do(
                query("ids_add_run"),
                (partition_id, first_seq + start, run),
            )
            start += length
        return added

    def give_back(self, first_seq: int, partition_ids: Iterable[int], ids: Iterable[str]) -> None:
        """Forget those of the ids that stand for messages from `first_seq` on."""
        self._database.many(
            query("id_give_back"),
            zip(partition_ids, ids, repeat(first_seq)),
        )

    def note(self, rows: Iterable[tuple[int, str, int]]) -> None:
        """Partition, id and seq each, of messages that were stored."""
        self._noted.update({(partition_id, transaction_id): seq for partition_id, transaction_id, seq in rows})

    def settle(self) -> None:
        """Put into the database what was noted."""
        if self._noted:
            self.add(sorted([(*key, seq) for key, seq in self._noted.items()]))
            self._noted = {}

    def forget_noted(self) -> None:
        self._noted = {}

    def add(self, rows: Iterable[tuple[int, str, int]]) -> None:
        """What `note` does, now. An id that is taken keeps its message."""
        self._database.many(query("id_add"), rows)

    def seqs(self, wanted: Mapping[int, Collection[str]]) -> dict[tuple[int, str], int]:
        """For ids by partition: those that are taken, each with the message that has it."""
        found = {}
        for partition_id, ids in wanted.items():
            rows = self._database.all(
                query("ids_find"),
                (partition_id, _encode(list(ids)).decode()),
            )
            found.update({(partition_id, transaction_id): seq for transaction_id, seq in rows})
            if self._noted:
                keys = [(partition_id, transaction_id) for transaction_id in ids]
                found.update({key: self._noted[key] for key in keys if key in self._noted})
        return found
