"""What the store's thread works with: all parts of the embedded store put together, and a cycle of work on them."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forebay.broker.bulk import CommitOutcome
from forebay.broker.messages import Acknowledged, Acknowledgement, PushItem, TransactionOutcome
from forebay.broker.overview import DeadLetterFilter, SeekTarget
from forebay.broker.store import Waker
from forebay.broker.stores.embedded.answering import Answering
from forebay.broker.stores.embedded.committing import StageCommitter, told
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.letters import DeadLetters
from forebay.broker.stores.embedded.overview import Overview
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.pushing import DuplicateInTransaction, Pusher, Request
from forebay.broker.stores.embedded.queues import Queues
from forebay.broker.stores.embedded.records import RecordCache
from forebay.broker.stores.embedded.retention import Retention
from forebay.broker.stores.embedded.staging import Stages
from forebay.broker.stores.embedded.traces import Traces
from forebay.broker.stores.embedded.work_line import Work
from forebay.clock import Clock
from forebay.commitlog import LogOptions
from forebay.commitlog.filesystem import Filesystem, Lock
from forebay.commitlog.log import not_accessible, take_lock
from forebay.errors import ForebayError, StoreUnavailable

DATABASE_FILE = "store.sqlite"

logger = logging.getLogger(__name__)


class _Aborted(Exception):
    """A transaction that is to leave nothing behind; the message is its error."""


class Engine:
    """For one thread at a time: who opens it, and then the store's own."""

    def __init__(
        self, directory: Path, options: LogOptions, clock: Clock, filesystem: Filesystem, on_available: Waker
    ) -> None:
        """Take the directory, make or open what is in it, and catch up with what a crash left behind."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock: Lock = take_lock(filesystem, directory)
            (directory / "queues").mkdir(exist_ok=True)
            self.database = Database(directory / DATABASE_FILE)
        except OSError as error:
            raise not_accessible(directory, error) from error
        self._wake = on_available
        self._stored: Counter[str] = Counter()
        self._is_index_behind = False
        self._is_memory_doubtful = False
        self.queues = Queues(self.database, directory, options, clock, filesystem)
        self._cache = RecordCache()
        self._index = MessageIndex(self.database, self.queues, self._cache)
        self.letters = DeadLetters(self.database, self.queues, clock)
        self.popper = Popper(self.database, self.queues, self._index, self.letters, clock)
        self.answering = Answering(self.database, self.queues, self.popper, clock)
        shared = (self.database, self.queues, self._index, self.popper, clock)
        self.overview = Overview(*shared)
        self.retention = Retention(*shared, self.answering.freed)
        self._pusher = Pusher(self.queues, self._index, clock, kept=self.overview.kept, waiting=self.overview.waiting)
        self.traces = Traces(self.database, self.queues)
        self.stages = Stages(directory, self.database, clock)
        self._committer = StageCommitter(
            self.database, self.queues, self._index, self.stages, clock, self.overview.waiting
        )
        self.stages.sweep()
        self.queues.load()
        with self.database.transaction(synced=False):
            self.retention.give_up_what_is_lost()
            self.recovered_messages = self._index.catch_up()

    def close(self) -> None:
        with self.database.transaction(synced=True):
            self._index.settle()
            for queue in self.queues.by_id.values():
                self.database.many(
                    "UPDATE groups SET last_active_us = max(last_active_us, ?) WHERE id = ?",
                    [(group.last_active_us, group.group_id) for group in queue.groups.values()],
                )
        self.queues.close()
        self.database.close()
        self._lock.release()

    def cycle(self, work: Sequence[Work]) -> None:
        """Do all of it in one transaction; what came of it stands in it when that is committed."""
        self._stored = Counter()
        try:
            if self._is_memory_doubtful:
                self._believe_the_database()
            with self.database.transaction(synced=any(item.synced or self._makes_queue(item.call) for item in work)):
                if self._is_index_behind:
                    self._index.catch_up()
                    self._is_index_behind = False
                pushes = [item.call for item in work if isinstance(item.call, Request)]
                if pushes:
                    self._stored += self._pusher.push(pushes)
                if len(pushes) < len(work) or self._index.is_tail_long:
                    self._index.settle()
                for item in work:
                    _do(item)
        except BaseException as error:
            logger.exception("a cycle of the store failed", extra={"action": "store_cycle_failed"})
            for item in work:
                item.error = _as_refusal(error, is_outcome_unknown=isinstance(item.call, Request))
            self._is_memory_doubtful = True
            # At once if the database lets us: others look at the queues meanwhile. Else the next cycle begins with it.
            with contextlib.suppress(Exception):
                self._believe_the_database()
        else:
            if self.queues.forgotten:
                self._cache.forget(self.queues.remove_forgotten())
            self.retention.truncate_logs()
            self.stages.remove_files()
            for queue, count in self._stored.items():
                if count:
                    self._wake(queue, count)
            for queue in self.answering.freed:
                self._wake(queue, 1)
        self.answering.freed.clear()

    def _makes_queue(self, call: Callable[[], Any] | Request) -> bool:
        """A queue that a push makes must survive what the push survives."""
        return isinstance(call, Request) and call.queue not in self.queues.by_name

    def _believe_the_database(self) -> None:
        """After a cycle that was rolled back: memory may say what is not so."""
        # What was appended stays in the logs, so it is part of the queues, although nobody was told so.
        self._is_index_behind = True
        self._index.forget_noted()
        self.retention.forget_truncations()
        self.stages.spare_files()
        self.queues.reload()
        self._cache.forget()
        self._is_memory_doubtful = False

    # --- what takes more than one part ---

    def delete_queue(self, name: str) -> bool:
        return self.overview.delete(name)

    def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        moved = self.overview.seek(group, self.queues.existing(queue), partition, target)
        self.answering.freed.add(queue)
        return moved

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        found = self.overview.delete_message(partition_id, transaction_id)
        if found is not None:
            self.answering.forget_deleted(*found)
        return found is not None

    def transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement], *, duplicates_abort: bool
    ) -> TransactionOutcome:
        tag = uuid.uuid4().bytes
        try:
            with self.database.savepoint():
                acknowledged = self.answering.acknowledge(acknowledgements)
                _check_accepted(acknowledged)
                self.database.do("INSERT INTO committed_tags (tag) VALUES (?)", (tag,))
                if duplicates_abort:
                    self._pusher.refuse_duplicates(pushes)
                pushed = self._pusher.push_tagged(pushes, tag)
        except (_Aborted, DuplicateInTransaction, ForebayError) as error:
            # Memory may be ahead of the database now: ready lists moved on, partitions were named.
            self.queues.reload()
            if isinstance(error, ForebayError):
                raise
            return TransactionOutcome([], [], str(error))
        fresh = Counter(i.queue for i, p in zip(pushes, pushed, strict=True) if p.status == "queued")
        self._stored += fresh
        return TransactionOutcome(pushed, acknowledged)

    def replay_dead_letters(self, wanted: DeadLetterFilter, after_id: int, last_id: int) -> list[int]:
        """The next ones of those up to that id; returns which."""
        letters = self.letters.next(wanted, after_id, last_id)
        if letters:
            self.transact(self.letters.as_items(letters), (), duplicates_abort=False)
        return self.letters.remove([letter.letter_id for letter in letters])

    def commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        earlier = self._committer.earlier(producer, epoch)
        if earlier is not None:
            return earlier
        try:
            with self.database.savepoint():
                outcome = self._committer.commit(producer, epoch, stage_ids, uuid.uuid4().bytes)
        except ForebayError:
            self.queues.reload()
            self.stages.spare_files()
            raise
        self._stored += told(outcome)
        return outcome


def _do(item: Work) -> None:
    if isinstance(item.call, Request):
        item.result, item.error = item.call.answers, item.call.error
        return
    try:
        item.result = item.call()
    except ForebayError as error:
        item.error = error


def _check_accepted(acknowledged: Sequence[Acknowledged]) -> None:
    for found in acknowledged:
        if not found.answered.is_accepted:
            raise _Aborted(found.answered.error)


def _as_refusal(error: BaseException, *, is_outcome_unknown: bool) -> BaseException:
    if isinstance(error, sqlite3.OperationalError | OSError):
        return StoreUnavailable(f"the store cannot write: {error}", is_outcome_unknown=is_outcome_unknown)
    return error
