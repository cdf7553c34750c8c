"""Parts of a cycle that happen as a whole or not at all: transactions, commits of stages, dead letters pushed again.

Each is a savepoint of the database. What is refused leaves nothing behind in memory either, at a cost that grows with
what it touched and not with what there is: queues and partitions that it named are forgotten again, and the partitions
whose answers it took back are put where they were. A partition that was to get messages and did not may be taken for
ready by a group: the next pop finds out.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from forebay.broker.bulk import CommitOutcome, StagesOf, identity_of
from forebay.broker.messages import Acknowledged, Acknowledgement, TransactionOutcome
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.broker.room_work import (
    Ask,
    CommitStages,
    DeadSeqs,
    DropStages,
    Edge,
    GroupEdge,
    Now,
    QueueEdge,
    QueueGaps,
    Step,
    TryAlone,
    Work,
    drive,
    sqlite_values,
)
from forebay.broker.stores.embedded.acknowledging import Acknowledging
from forebay.broker.stores.embedded.committing import StageCommitter, seqs_by_queue
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.dead_letters import DeadLetters
from forebay.broker.stores.embedded.group_edges import dead_seqs, gaps_of, group_edge
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.pushing import DuplicateInTransaction, Pusher
from forebay.broker.stores.embedded.queues import Queues
from forebay.broker.stores.embedded.staging import Stages
from forebay.errors import ForebayError
from forebay.model.push_run import PushRun

T = TypeVar("T")


class _Aborted(Exception):
    """A transaction that is to leave nothing behind; the message is its error."""


class Transactions:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        pusher: Pusher,
        acknowledging: Acknowledging,
        letters: DeadLetters,
        stages: Stages,
        committer: StageCommitter,
        limits: EmbeddedLimits,
    ) -> None:
        self._database = database
        self._queues = queues
        self._pusher = pusher
        self._acknowledging = acknowledging
        self._letters = letters
        self._stages = stages
        self._committer = committer
        self._limits = limits
        self.stored: Counter[str] = Counter()
        """How many messages each queue got in this cycle. The store tells, and forgets."""

    @contextmanager
    def _as_a_whole(self) -> Iterator[None]:
        before = self._queues.count_made()
        try:
            with self._database.savepoint():
                yield
        except Exception:
            self._queues.unmake(before)
            self._queues.forget_counts()
            raise

    def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement], *, duplicates_abort: bool
    ) -> TransactionOutcome:
        self._pusher.be_counted(run.queue for run in pushes)
        try:
            with self._as_a_whole():
                acknowledged = self._acknowledging.acknowledge(acknowledgements)
                _check_accepted(acknowledged)
                if duplicates_abort:
                    self._pusher.refuse_duplicates(pushes)
                pushed, stored = self._pusher.push_tagged(pushes, uuid.uuid4().bytes)
        except (_Aborted, DuplicateInTransaction, ForebayError) as error:
            self._acknowledging.take_back(acknowledgements)
            if isinstance(error, ForebayError):
                raise
            return TransactionOutcome([], [], str(error))
        self.stored += stored
        return TransactionOutcome(pushed, acknowledged)

    def replay_dead_letters(
        self, wanted: DeadLetterFilter, to_all_groups: bool, after_id: int, last_id: int
    ) -> list[int]:
        """The next ones of those up to that id; returns which."""
        letters = _of_few_queues(self._letters.next(wanted, after_id, last_id), self._limits.queues_at_once_max)
        if letters:
            self.transact(self._letters.as_runs(letters, to_all_groups), (), duplicates_abort=False)
        return self._letters.remove([letter.letter_id for letter in letters])

    def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        return self.as_a_whole(lambda: self._commit(wanted, stage_ids))

    def as_a_whole(self, do: Callable[[], tuple[T, Counter[str]]]) -> T:
        """Do something that may commit stages; it returns its result, and how many messages each queue got."""
        try:
            with self._as_a_whole():
                result, stored = do()
        except ForebayError:
            self._stages.spare_files()
            raise
        self.stored += stored
        return result

    def _commit(self, wanted: StagesOf, stage_ids: Sequence[str]) -> tuple[CommitOutcome, Counter[str]]:
        decision = self._committer.decide(wanted, stage_ids)
        if not decision.new:
            # Its stages stay until they expire: the answer may be lost, and they be committed once more.
            return decision.outcome(), Counter()
        self._pusher.be_counted(decision.new)
        outcome = self._committer.commit(wanted, stage_ids, decision, uuid.uuid4().bytes)
        return outcome, seqs_by_queue(outcome, decision)

    def together(self, begin: Callable[[], Work[T]], now_us: int) -> T:
        """Another room's work, with what it asks of the store."""
        stored: Counter[str] = Counter()

        def do(step: Step) -> Any:
            match step:
                case Ask(statement, values):
                    return self._database.execute(statement.sqlite, sqlite_values(values)).fetchall()
                case Now():
                    return now_us
                case QueueEdge(name):
                    return edge_of(self._queues, name)
                case QueueGaps():
                    return gaps_of(self._database.execute, self._queues, step)
                case GroupEdge():
                    return group_edge(self._database.execute, self._queues, step, now_us)
                case DeadSeqs():
                    return dead_seqs(self._database.execute, step)
                case CommitStages(wanted, stage_ids):
                    outcome, added = self._commit(wanted, stage_ids)
                    stored.update(added)
                    return outcome
                case DropStages(wanted):
                    return self._stages.forget(wanted)
                case TryAlone(other):
                    return self._alone(other, do)

        return self.as_a_whole(lambda: (drive(begin(), do), stored))

    def _alone(self, begin: Callable[[], Work[Any]], do: Callable[[Step], Any]) -> Any:
        try:
            with self._as_a_whole():
                return drive(begin(), do)
        except ForebayError as error:
            return error


def edge_of(queues: Queues, name: str) -> Edge | None:
    queue = queues.by_name.get(name)
    if queue is None:
        return None
    identity = identity_of(queue.queue_id, queue.info.created_us)
    return Edge(queue.queue_id, queue.log.first_seq, queue.log.next_seq, identity)


def _of_few_queues(letters: Sequence[DeadMessage], queues_max: int) -> list[DeadMessage]:
    """The first ones: each queue takes a sync of its own, and others wait for all of them."""
    queues: set[str] = set()
    chosen = []
    for letter in letters:
        queues.add(letter.message.queue)
        if len(queues) > queues_max:
            break
        chosen.append(letter)
    return chosen


def _check_accepted(acknowledged: Sequence[Acknowledged]) -> None:
    for found in acknowledged:
        if not found.answered.is_accepted:
            raise _Aborted(found.answered.error)
