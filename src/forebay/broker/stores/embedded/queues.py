"""What the store's thread keeps in memory of queues: names, options, logs, partitions by name, ready lists.

All of it can be made again from the database and the logs, and is, when a cycle failed half-way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.ready import ReadyList
from forebay.broker.stores.embedded.turn import NotYet, Turn
from forebay.broker.stores.embedded.waiting_count import WaitingCount
from forebay.clock import Clock
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.layout import QUARANTINE, QUEUES, foreign_names
from forebay.commitlog.manifest import ManifestStore
from forebay.commitlog.recovery import sign_of_messages
from forebay.errors import DiskFull, LogUnopenable, StoreUnavailable, Transient, UnknownQueue
from forebay.filesystem import Filesystem, Kind, is_disk_full, remove_tree
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions, namespace_and_task_of

logger = logging.getLogger(__name__)

_encode_options = msgspec.json.Encoder().encode
_decode_options = msgspec.json.Decoder(QueueOptions).decode


@dataclass(slots=True)
class Group:
    group_id: int
    name: str
    start_seq: int
    last_active_us: int = 0
    """When it last popped; written down when the store closes."""
    ready: ReadyList | None = None


@dataclass(slots=True)
class OpenQueue:
    queue_id: int
    info: Queue
    log: CommitLog
    partitions: dict[str, int] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    waiting: WaitingCount | None = None
    """Kept for a queue with a limit from the first push on that may not fit."""

    def wire_id(self, partition_id: int) -> str:
        """A partition's id as clients see it: it names its queue too, and is never used again."""
        return f"{self.queue_id}-{partition_id}"

    def forget_partition(self, name: str) -> None:
        number = self.partitions.pop(name)
        for group in self.groups.values():
            if group.ready is not None:
                group.ready.drop(number)


class Queues:
    def __init__(
        self, database: Database, directory: Path, options: LogOptions, clock: Clock, filesystem: Filesystem
    ) -> None:
        self._filesystem = filesystem
        self._database = database
        self._directory = directory
        self._options = options
        self._clock = clock
        self.by_name: dict[str, OpenQueue] = {}
        self.by_id: dict[int, OpenQueue] = {}
        self.forgotten: dict[int, OpenQueue] = {}
        """No queues any more. Until a commit has confirmed that they may have to come back, with their logs."""
        self._left_over: set[int] = set()
        """Numbers of no queue whose directories are still to be removed."""
        self._last_number = 0
        self._made: list[tuple[OpenQueue, str | None]] = []
        """What was made in this cycle: a partition, or with None the queue itself."""
        self._turn = Turn()

    def load(self) -> None:
        """Open every queue that the database knows."""
        self._read()
        row = self._database.one(query("queue_last_number"))
        names = self._filesystem.list_directory(self._directory / QUEUES)
        numbers = {int(name) for name in names if name.isdecimal()}
        self._last_number = max([0, *numbers, *(row or ())])
        strangers = [number for number in sorted(numbers - self.by_id.keys()) if not self._removed_if_empty(number)]
        if strangers:
            # Of a queue that was being removed when the process was killed; or of another database.
            logger.warning(
                "%s: logs of no queue that the database knows: %s; they are left alone",
                self._directory / QUEUES,
                ", ".join(map(str, strangers)),
                extra={"action": "store_strange_logs"},
            )

    def _removed_if_empty(self, number: int) -> bool:
        """Remove the log of a queue that was being made when that failed: it holds nothing."""
        path, filesystem = self._log_path(number), self._filesystem
        has_messages = sign_of_messages(filesystem, path, ManifestStore(filesystem, path)) is not None
        has_more = filesystem.status(path / QUARANTINE).kind is not Kind.ABSENT or foreign_names(filesystem, path)
        if has_messages or has_more:
            return False
        remove_tree(filesystem, path)
        return True

    def _read(self) -> None:
        for row in self._database.all(query("queues_load")):
            self._open(*row)

    def _open(self, queue_id: int, name: str, namespace: str, task: str, options: bytes, created_us: int) -> OpenQueue:
        info = Queue(name, namespace, task, _decode_options(options), created_us)
        known = self.by_id.get(queue_id) or self.forgotten.pop(queue_id, None)
        log = known.log if known else self._open_log(queue_id)
        queue = OpenQueue(queue_id, info, log)
        rows = self._database.all(query("partitions_load"), (queue_id,))
        queue.partitions = dict(rows)
        for group_id, group, start_seq in self._database.all(query("groups_load"), (queue_id,)):
            queue.groups[group] = Group(group_id, group, start_seq)
        self.by_name[name] = self.by_id[queue_id] = queue
        return queue

    def _open_log(self, queue_id: int) -> CommitLog:
        return CommitLog.open(
            self._log_path(queue_id), self._options, clock=self._clock, filesystem=self._filesystem, is_owned=True
        )

    def _log_path(self, queue_id: int) -> Path:
        return self._directory / QUEUES / str(queue_id)

    def reload(self) -> None:
        """After a cycle that was rolled back: believe the database, not memory. Logs stay open."""
        self.keep_made()
        self.by_name = {}
        before, self.by_id = self.by_id, dict(self.by_id)
        self._read()
        for queue_id, queue in before.items():
            for name, group in queue.groups.items():
                known_group = self.by_id[queue_id].groups.get(name)
                if known_group is not None:
                    known_group.last_active_us = group.last_active_us
        known = {row[0] for row in self._database.all(query("queue_numbers"))}
        for queue_id in set(before) - known:
            # It was made in what was rolled back, so no client has a response about anything in its log.
            self.forgotten[queue_id] = self.by_id.pop(queue_id)

    def existing(self, name: str) -> OpenQueue:
        queue = self.by_name.get(name)
        if queue is None:
            raise UnknownQueue(name)
        return queue

    def made(self, name: str, namespace: str, task: str) -> OpenQueue:
        """The queue, made if there is none; what cannot be made leaves nothing behind."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        own_namespace, own_task = namespace_and_task_of(name)
        values = (
            name,
            namespace or own_namespace,
            task or own_task,
            _encode_options(QueueOptions()),
            self._clock.now_us(),
        )
        # Counted here: a rollback would set the database's own count back, and the next queue would find a log that
        # another program has written.
        self._last_number += 1
        statement = query("queue_add")
        try:
            with self._database.savepoint():
                self._database.do(statement, (self._last_number, *values))
                queue = self._open(self._last_number, *values)
        except (LogUnopenable, OSError) as error:
            self._left_over.add(self._last_number)
            raise self._not_made(name, error) from error
        except Transient:
            self._left_over.add(self._last_number)
            raise
        self._made.append((queue, None))
        return queue

    def made_in_turn(self, run: PushRun) -> OpenQueue:
        """The queue of a run; raises `NotYet` when enough were made in this cycle."""
        found = self.by_name.get(run.queue)
        if found is not None:
            return found
        with self._turn.one_more():
            return self.made(run.queue, run.namespace, run.task)

    def make_some(self, runs: Sequence[PushRun]) -> int:
        """The queues of these runs, as many as this cycle has time for; returns how many that were."""
        for count, run in enumerate(runs):
            try:
                self.made_in_turn(run)
            except NotYet:
                return count
        return len(runs)

    def _not_made(self, name: str, error: LogUnopenable | OSError) -> Transient:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and is_disk_full(cause):
            return DiskFull(self._log_path(self._last_number), f"queue {name!r} cannot be made")
        reason = cause.strerror if isinstance(cause, OSError) else str(error)
        return StoreUnavailable(f"queue {name!r} cannot be made: {reason}")

    def configure(self, name: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        queue = self.made(name, namespace, task)
        info = queue.info
        queue.info = Queue(name, namespace or info.namespace, task or info.task, options, info.created_us)
        self._database.do(
            query("queue_configure"),
            (_encode_options(options), queue.info.namespace, queue.info.task, queue.queue_id),
        )
        for group in queue.groups.values():
            group.ready = None  # delays and windows may have changed
        return queue.info

    def partition_id(self, queue: OpenQueue, name: str) -> int:
        found = queue.partitions.get(name)
        if found is None:
            statement = query("partition_add")
            found = queue.partitions[name] = self._database.insert(
                statement, {"queue_id": queue.queue_id, "name": name}
            )
            self._made.append((queue, name))
        return found

    def count_made(self) -> int:
        """How many queues and partitions this cycle has made so far."""
        return len(self._made)

    def unmake(self, count: int) -> None:
        """Forget those behind the first so many: the database has forgotten them."""
        while len(self._made) > count:
            queue, partition = self._made.pop()
            if partition is None:
                del self.by_name[queue.info.name]
                # No client has a response about anything in its log.
                self._let_go(self.by_id.pop(queue.queue_id))
            else:
                queue.forget_partition(partition)

    def forget_counts(self) -> None:
        """What was counted of what waits may be of something that was rolled back."""
        for queue in self.by_id.values():
            queue.waiting = None

    def keep_made(self) -> None:
        """What was made so far stays: another cycle begins."""
        self._made.clear()
        self._turn.begin()

    def of_wire_id(self, wire_id: str) -> tuple[OpenQueue, int] | None:
        """Queue and partition of an id that a client sent; None for anything that is none of ours."""
        queue_id, _, partition_id = wire_id.partition("-")
        if not (queue_id.isascii() and queue_id.isdigit() and partition_id.isascii() and partition_id.isdigit()):
            return None
        queue = self.by_id.get(int(queue_id[:18]))
        return (queue, int(partition_id[:18])) if queue else None

    def forget(self, name: str) -> None:
        queue = self.by_name.pop(name)
        self.forgotten[queue.queue_id] = self.by_id.pop(queue.queue_id)

    @property
    def has_left_over(self) -> bool:
        return bool(self.forgotten or self._left_over)

    def remove_forgotten(self) -> list[int]:
        """Remove their logs, now that they are gone from the database for good; returns their numbers."""
        removed = list(self.forgotten)
        while self.forgotten:
            self._let_go(self.forgotten.popitem()[1])
        self._remove_left_over()
        return removed

    def _let_go(self, queue: OpenQueue) -> None:
        queue.log.close()
        self._left_over.add(queue.queue_id)
        self._remove_left_over()

    def _remove_left_over(self) -> None:
        """What cannot be removed now, for want of file handles say, is removed after a later cycle."""
        for number in list(self._left_over):
            remove_tree(self._filesystem, self._log_path(number))
            if self._filesystem.status(self._log_path(number)).kind is Kind.ABSENT:
                self._left_over.remove(number)

    def close(self) -> None:
        for queue in self.by_id.values():
            queue.log.close()
