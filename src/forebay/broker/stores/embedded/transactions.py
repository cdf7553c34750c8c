"""Parts of a cycle that happen as a whole or not at all: transactions, commits of stages, dead letters pushed again.

Each is a savepoint of the database. What is refused leaves nothing behind in memory either, at a cost that grows with
what it touched and not with what there is: queues and partitions that it named are forgotten again, and the partitions
whose answers it took back are put where they were. A partition that was to get messages and did not may be taken for
ready by a group: the next pop finds out.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from forebay.broker.bulk import CommitOutcome, StagesOf
from forebay.broker.messages import Acknowledged, Acknowledgement, PushItem, TransactionOutcome
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.stores.embedded.answering import Answering
from forebay.broker.stores.embedded.committing import StageCommitter, told
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.letters import DeadLetters
from forebay.broker.stores.embedded.pushing import DuplicateInTransaction, Pusher
from forebay.broker.stores.embedded.queues import Queues
from forebay.broker.stores.embedded.staging import Stages
from forebay.errors import ForebayError


class _Aborted(Exception):
    """A transaction that is to leave nothing behind; the message is its error."""


class Transactions:
    def __init__(
        self,
        database: Database,
        queues: Queues,
        pusher: Pusher,
        answering: Answering,
        letters: DeadLetters,
        stages: Stages,
        committer: StageCommitter,
    ) -> None:
        self._database = database
        self._queues = queues
        self._pusher = pusher
        self._answering = answering
        self._letters = letters
        self._stages = stages
        self._committer = committer
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
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement], *, duplicates_abort: bool
    ) -> TransactionOutcome:
        self._pusher.be_counted(item.queue for item in pushes)
        try:
            with self._as_a_whole():
                acknowledged = self._answering.acknowledge(acknowledgements)
                _check_accepted(acknowledged)
                if duplicates_abort:
                    self._pusher.refuse_duplicates(pushes)
                pushed = self._pusher.push_tagged(pushes, uuid.uuid4().bytes)
        except (_Aborted, DuplicateInTransaction, ForebayError) as error:
            self._answering.take_back(acknowledgements)
            if isinstance(error, ForebayError):
                raise
            return TransactionOutcome([], [], str(error))
        self.stored += Counter(i.queue for i, p in zip(pushes, pushed, strict=True) if p.status == "queued")
        return TransactionOutcome(pushed, acknowledged)

    def replay_dead_letters(
        self, wanted: DeadLetterFilter, to_all_groups: bool, after_id: int, last_id: int
    ) -> list[int]:
        """The next ones of those up to that id; returns which."""
        letters = self._letters.next(wanted, after_id, last_id)
        if letters:
            self.transact(self._letters.as_items(letters, to_all_groups), (), duplicates_abort=False)
        return self._letters.remove([letter.letter_id for letter in letters])

    def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        decision = self._committer.decide(wanted, stage_ids)
        if not decision.new:
            # Its stages stay until they expire: the answer may be lost, and they be committed once more.
            return decision.outcome()
        self._pusher.be_counted(decision.new)
        try:
            with self._as_a_whole():
                outcome = self._committer.commit(wanted, stage_ids, decision, uuid.uuid4().bytes)
        except ForebayError:
            self._stages.spare_files()
            raise
        self.stored += told(outcome, decision)
        return outcome


def _check_accepted(acknowledged: Sequence[Acknowledged]) -> None:
    for found in acknowledged:
        if not found.answered.is_accepted:
            raise _Aborted(found.answered.error)
