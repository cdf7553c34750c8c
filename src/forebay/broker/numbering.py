"""What becomes of runs of messages: which of them are new, which numbers they get, and the answers to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from forebay.broker.messages import DUPLICATE, QUEUED, Pushed
from forebay.model.push_run import PushRun


def numbered(
    run: PushRun, seq: int, taken: Mapping[str, dict[str, int]] | None, partition_ids: Mapping[str, str], receipt: str
) -> tuple[PushRun | None, list[Pushed]]:
    """What of a run is new, to be numbered from `seq` on, and the answers to all of it.

    `taken`: ids that each partition has already, with their seqs; the new ones are added. None: none can be taken.
    `partition_ids` are those of the run's partitions by name, and no others.
    """
    count = len(run)
    if taken is not None:
        new: list[int] = []
        answers = []
        for place, (partition, transaction_id) in enumerate(zip(run.partitions, run.transaction_ids, strict=True)):
            own = seq + len(new)
            earlier = taken[partition].setdefault(transaction_id, own)
            if earlier == own:
                new.append(place)
            answers.append(Pushed(QUEUED if earlier == own else DUPLICATE, earlier, partition_ids[partition], receipt))
        if len(new) < count:
            return run.at(new) if new else None, answers
    if len(partition_ids) == 1:
        [partition_id] = partition_ids.values()
        return run, [Pushed(QUEUED, seq, partition_id, receipt, count)]
    shown = map(partition_ids.__getitem__, run.partitions)
    return run, list(map(Pushed, repeat(QUEUED), range(seq, seq + count), shown, repeat(receipt)))


def by_run(runs: Iterable[PushRun], pushed: Iterable[Pushed]) -> Iterator[list[Pushed]]:
    """The answers to each of the runs; none is for messages of two."""
    left = iter(pushed)
    for run in runs:
        own, missing = [], len(run)
        while missing:
            own.append(next(left))
            missing -= own[-1].count
        yield own


def each_message(pushed: Sequence[Pushed]) -> list[Pushed]:
    """The answers, one per message."""
    return [one for found in pushed for one in ((found,) if found.count == 1 else found.each())]


def count_of(status: str, pushed: Iterable[Pushed]) -> int:
    """How many messages have been answered with it."""
    return sum([found.count for found in pushed if found.status == status])
