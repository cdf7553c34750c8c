"""What the store's thread works with: all parts of the embedded store put together, and a cycle of work on them."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from forebay.broker.messages import QUEUED
from forebay.broker.numbering import count_of, each_message
from forebay.broker.store import Waker
from forebay.broker.stores.embedded.acknowledging import Acknowledging
from forebay.broker.stores.embedded.belonging import Belonging
from forebay.broker.stores.embedded.browsing import Browsing
from forebay.broker.stores.embedded.committing import StageCommitter
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.database import CommitFailed, Database
from forebay.broker.stores.embedded.dead_letters import DeadLetters
from forebay.broker.stores.embedded.deletion import Deletion
from forebay.broker.stores.embedded.expiring import Expiring
from forebay.broker.stores.embedded.figures import CountedQueue
from forebay.broker.stores.embedded.flows import Flows
from forebay.broker.stores.embedded.groups import Groups
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.losses import Losses
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.purging import Purger
from forebay.broker.stores.embedded.pushing import PendingPush, PushBroken, Pusher
from forebay.broker.stores.embedded.queues import Queues
from forebay.broker.stores.embedded.reading import ReadableQueue
from forebay.broker.stores.embedded.reconciling import Reconciler
from forebay.broker.stores.embedded.records import RecordCache
from forebay.broker.stores.embedded.retention import Retention
from forebay.broker.stores.embedded.staging import Stages
from forebay.broker.stores.embedded.store_thread import Work
from forebay.broker.stores.embedded.traces import Traces
from forebay.broker.stores.embedded.transactions import Transactions
from forebay.clock import Clock
from forebay.commitlog import LogOptions
from forebay.commitlog.access import not_accessible, take_lock_of
from forebay.commitlog.layout import QUEUES
from forebay.errors import DamagedRange, ForebayError, InvariantBroken, StoreUnavailable
from forebay.filesystem import Filesystem, Lock, make_directories

logger = logging.getLogger(__name__)

BROKEN_MAX = 4
"""How many calls of a cycle may break before all of it is given up: then it is not the calls that are broken."""


class _Broken(Exception):
    """This work has raised what is not expected: a bug, or trouble with the disk."""

    def __init__(self, work: Sequence[Work], cause: Exception, *, is_nothing_stored: bool = False) -> None:
        super().__init__(cause)
        self.work = work
        self.cause = cause
        self.is_nothing_stored = is_nothing_stored


class Engine:
    """For one thread at a time: the one that opens it, and then the store's own."""

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        clock: Clock,
        filesystem: Filesystem,
        limits: EmbeddedLimits,
        on_available: Waker,
    ) -> None:
        """Take the directory, make or open what is in it, and catch up with what a crash left behind."""
        try:
            make_directories(filesystem, directory)
            self._lock: Lock = take_lock_of(filesystem, directory)
            make_directories(filesystem, directory / QUEUES)
            self.database = Database(directory / DATABASE_FILE)
        except OSError as error:
            raise not_accessible(directory, error) from error
        self._wake = on_available
        self._is_index_behind = False
        self._is_memory_doubtful = False
        self.queues = Queues(self.database, directory, options, clock, filesystem)
        self._cache = RecordCache()
        self.losses = Losses(self.database, self.queues, self._cache, clock)
        self._index = MessageIndex(self.database, self.queues, self._cache, self.losses, limits)
        self.letters = DeadLetters(self.database, self.queues, clock, limits)
        self.popper = Popper(self.database, self.queues, self._index, self.letters, clock, limits)
        self.acknowledging = Acknowledging(self.database, self.queues, self.popper, clock)
        self.browsing = Browsing(self.database, self.queues, self._index, self.popper.states)
        self.deletion = Deletion(self.database, self.queues, self.browsing)
        self.groups = Groups(self.database, self.queues, self.popper)
        self.retention = Retention(
            self.database, self.queues, self._index, self.popper, self.acknowledging.freed, limits
        )
        self.expiring = Expiring(self.database, self.queues)
        self._pusher = Pusher(self.queues, self._index, clock, self.database, limits)
        self.purger = Purger(self.database, self._index.tags, limits)
        self.traces = Traces(self.database, self.queues, clock, limits)
        self.flows = Flows(self.database, clock)
        self.belonging = Belonging(self.database, self.queues)
        self.stages = Stages(directory, self.database, clock, filesystem)
        committer = StageCommitter(
            self.database, self.queues, self._index, self.stages, clock, partial(self._pusher.waiting, is_urgent=True)
        )
        self.transactions = Transactions(
            self.database, self.queues, self._pusher, self.acknowledging, self.letters, self.stages, committer, limits
        )
        self.stages.sweep()
        self.queues.load()
        Reconciler(self.database, self.queues, self.losses, filesystem).reconcile()
        with self.database.transaction(synced=False):
            self.recovered_messages = self._index.catch_up()

    def close(self) -> None:
        with self.database.transaction(synced=True):
            self._index.settle()
            self.expiring.note_activity()
        self.queues.close()
        self.database.close()
        self._lock.release()

    def cycle(self, work: Sequence[Work]) -> None:
        """Do all of it in one transaction; what came of it stands in it when that is committed.

        What breaks it gets its error, and the rest is done again without it. Pushes to one queue are stored together.
        When they break before anything of them is in the log, each is done again alone, to find the one that breaks.
        """
        chances, is_again = BROKEN_MAX, False
        while work:
            try:
                self._do_all(work, is_again=is_again)
            except BaseException as error:
                logger.exception("a cycle of the store failed", extra={"action": "store_cycle_failed"})
                is_again = True
                if isinstance(error, _Broken) and chances and self._is_divided(error):
                    self._forget_cycle()
                    continue
                broken = error.work if isinstance(error, _Broken) and chances else work
                self._refuse(broken, error)
                work = [item for item in work if item not in broken]
                chances -= 1
            else:
                self._follow_up()
                break

    def _do_all(self, work: Sequence[Work], *, is_again: bool) -> None:
        self.queues.keep_made()
        self.acknowledging.freed.clear()
        stored = self.transactions.stored = Counter()
        if self._is_memory_doubtful:
            self._reload_from_database()
        with self.database.transaction(synced=any(item.synced or self._makes_queue(item.push) for item in work)):
            if self._is_index_behind:
                self._index.catch_up()
                self._is_index_behind = False
            pushes = [item.push for item in work if item.push is not None]
            if pushes:
                try:
                    stored += self._push_again(pushes) if is_again else self._pusher.push(pushes)
                except PushBroken as broken:
                    same = [item for item in work if item.push in broken.requests]
                    raise _Broken(same, broken.cause, is_nothing_stored=broken.is_nothing_stored) from broken
            if len(pushes) < len(work) or self._index.is_tail_long:
                self._index.settle()
            for item in work:
                self._do(item)

    def _do(self, item: Work) -> None:
        if item.push is not None:
            item.result, item.error = item.push.answers, item.push.error
        elif item.call is not None:
            self._do_call(item, item.call)

    def _do_call(self, item: Work, call: Callable[[], Any]) -> None:
        item.error = None
        before = self.database.changes
        try:
            item.result = call()
        except Exception as error:
            # What a call that fails has changed must not be committed with the others' work.
            is_refusal = isinstance(error, ForebayError) and not isinstance(error, InvariantBroken)
            if not is_refusal or self.database.changes != before:
                raise _Broken([item], error) from error
            item.error = error

    def _push_again(self, requests: Sequence[PendingPush]) -> Counter[str]:
        """After a rollback: what was stored is in its log, unless that has gone with a queue that was new."""
        stored: Counter[str] = Counter()
        accepted = [request for request in requests if request.error is None]
        unstored = [request for request in accepted if not self._is_in_log(request)]
        for request in accepted:
            queue = self.queues.by_name.get(request.queue)
            if queue is not None and request not in unstored:
                # Partitions that were new were made again, maybe in another order.
                names = (name for run in request.runs for name in run.partitions)
                request.answers = [
                    replace(answer, partition_id=queue.wire_id(queue.partitions[name]))
                    for name, answer in zip(names, each_message(request.answers), strict=True)
                ]
                stored[request.queue] += count_of(QUEUED, request.answers)
        return stored + self._pusher.push(unstored)

    def _is_in_log(self, request: PendingPush) -> bool:
        return request.is_stored and request.queue in self.queues.by_name

    def _refuse(self, work: Sequence[Work], error: BaseException) -> None:
        """Nothing of the cycle has happened as far as this process knows, and some of it never will."""
        is_unknown = isinstance(error, CommitFailed)
        cause = error.cause if isinstance(error, _Broken) else error
        for item in work:
            item.error = _as_refusal(cause, is_outcome_unknown=is_unknown or item.push is not None)
        self._forget_cycle()

    def _is_divided(self, error: _Broken) -> bool:
        """Let each of several pushes be done alone, where nothing of them is stored."""
        pushes = [item.push for item in error.work if item.push is not None]
        if len(pushes) < 2 or not error.is_nothing_stored:
            return False
        for push in pushes:
            push.is_alone, push.answers, push.error = True, (), None
        return True

    def _forget_cycle(self) -> None:
        self._is_memory_doubtful = True
        # At once if the database lets us: others look at the queues meanwhile. Else the next cycle begins with it.
        with contextlib.suppress(Exception):
            self._reload_from_database()

    def _follow_up(self) -> None:
        """It is committed: do what had to wait for that. Whatever fails here, the cycle has happened."""
        for step in (self._remove_forgotten, self.retention.truncate_logs, self.stages.remove_files, self._wake_all):
            try:
                step()
            except Exception:
                logger.exception("a step after a commit failed", extra={"action": "store_follow_up_failed"})

    def _remove_forgotten(self) -> None:
        # Without a commit the database has not confirmed that they are gone: a kill could bring them back.
        if self.queues.has_left_over and self.database.has_committed:
            self._cache.forget(self.queues.remove_forgotten())

    def _wake_all(self) -> None:
        for queue, count in self.transactions.stored.items():
            if count:
                self._wake(queue, count)
        for queue in self.acknowledging.freed:
            self._wake(queue, 1)

    def _makes_queue(self, push: PendingPush | None) -> bool:
        """A queue that a push makes must survive what the push survives."""
        return push is not None and push.queue not in self.queues.by_name

    def _reload_from_database(self) -> None:
        """After a cycle that was rolled back: memory may say what is not so."""
        # What was appended stays in the logs, so it is part of the queues, although no client was answered so.
        self._is_index_behind = True
        self._index.forget_noted()
        self.retention.forget_truncations()
        self.stages.spare_files()
        self.queues.reload()
        self._cache.forget()
        self._is_memory_doubtful = False

    # --- what takes more than one part ---

    def counted_queues(self, name: str | None) -> list[CountedQueue]:
        """What others need to know to count beside this thread: of one queue, if there is such a one, or of all."""
        chosen = [name] if name is not None else sorted(self.queues.by_name)
        return [
            CountedQueue(
                queue.info,
                ReadableQueue(queue.info.name, queue.queue_id, queue.log, queue.log.next_seq),
                {group.group_id: group.last_active_us for group in queue.groups.values()},
            )
            for queue in map(self.queues.by_name.get, chosen)
            if queue is not None
        ]

    def note_damage(self, queue_id: int, damage: Sequence[DamagedRange]) -> None:
        """What a reader beside the store's thread could not read."""
        queue = self.queues.by_id.get(queue_id)
        if queue is not None:
            for found in damage:
                self.losses.note(queue, found)

    def seek(self, group: str, queue: str, partition: str | None, seq: int, after: int) -> tuple[int, int | None]:
        moved = self.groups.seek(group, self.queues.existing(queue), partition, seq, after)
        self.acknowledging.freed.add(queue)
        return moved

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        found = self.deletion.delete_message(partition_id, transaction_id)
        if found is not None:
            self.acknowledging.forget_deleted(*found)
        return found is not None

    def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        message = self.browsing.message(partition_id, transaction_id)
        if message is None:
            return None
        letters = self.acknowledging.bury_for_all(message, reason)
        if letters:
            self.delete_message(partition_id, transaction_id)
        return letters


def _as_refusal(error: BaseException, *, is_outcome_unknown: bool) -> BaseException:
    """As a fault of the server's, whatever it is: a client must not take it for its own, and for final."""
    if isinstance(error, OSError):
        error_text = error.strerror or str(error)
    elif isinstance(error, sqlite3.OperationalError | CommitFailed):
        error_text = str(error)
    elif is_outcome_unknown and isinstance(error, ForebayError) and not isinstance(error, InvariantBroken):
        error_text = error.message
    else:
        return error
    return StoreUnavailable(f"the store cannot write: {error_text}", is_outcome_unknown=is_outcome_unknown)
