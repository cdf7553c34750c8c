"""The ledger of a queue: what its server says of it, what was counted, and where the two differ. Decisions only.

For a queue::

    accepted = in buffer files + stored + removed + lost

`accepted` are the seqs that were given out and what waits in buffer files; `stored` is counted message by message;
`removed` is the server's own figure: retention, deletion, and seqs of commits that were taken back. `lost` is what was
accepted and cannot be read any more, as the server tells it seq by seq. For a group::

    accepted = in buffer files + done + waiting + leased + dead

`done` is what is left: delivered and answered, or gone or lost before the group came to it, or before its start. A
group's cursor cannot be read from outside, so that `done` is not recounted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class GroupFigures(NamedTuple):
    """What the server says of a group on a queue."""

    name: str
    lag: int
    """Not answered yet, leased ones included."""
    leased: int
    dead: int


class QueueFigures(NamedTuple):
    """What the server says of a queue, at one moment."""

    name: str
    first_seq: int
    next_seq: int
    kept: int
    dead: int
    buffered: int
    partitions: dict[str, int]
    """How many messages each keeps."""
    groups: tuple[GroupFigures, ...]
    lost: int = 0

    @property
    def removed(self) -> int:
        return self.next_seq - 1 - self.kept - self.lost

    @property
    def accepted(self) -> int:
        return self.next_seq - 1 + self.buffered


@dataclass(slots=True)
class Recount:
    """What reading every message found."""

    stored: int = 0
    partitions: Counter[str] = field(default_factory=Counter)
    last_seq: int = 0
    disordered: int = 0
    """Messages whose seq is not higher than the one before."""
    repeated_ids: int = 0

    def add(self, seqs: list[int], partitions: list[str]) -> None:
        self.stored += len(seqs)
        self.partitions.update(partitions)
        for seq in seqs:
            self.disordered += seq <= self.last_seq
            self.last_seq = seq


class Balance(NamedTuple):
    figures: QueueFigures
    recount: Recount
    is_exact: bool
    """Nothing changed while it was counted. Else only what no change can excuse is a difference."""
    differences: list[str]


def balance_of(before: QueueFigures, recount: Recount, after: QueueFigures) -> Balance:
    """`before` and `after`: what the server said before and after all below `before.next_seq` was read."""
    is_exact = before == after
    found = _of_messages(before, recount, after)
    if is_exact:
        found += _of_partitions(before, recount)
        for group in before.groups:
            found += _of_group(group, before, recount)
    return Balance(before, recount, is_exact, found)


def _of_messages(before: QueueFigures, recount: Recount, after: QueueFigures) -> list[str]:
    found = []
    gone = max(0, after.removed + after.lost - before.removed - before.lost)
    if not before.kept - gone <= recount.stored <= before.kept:
        meanwhile = f", of which up to {gone} were removed or lost meanwhile" if gone else ""
        found.append(f"{recount.stored} messages are stored; the server counts {before.kept}{meanwhile}")
    if recount.disordered:
        found.append(f"{recount.disordered} messages do not have a higher seq than the one before")
    if recount.last_seq >= before.next_seq:
        found.append(f"seq {recount.last_seq} is stored; the next to be given out is {before.next_seq}")
    if recount.repeated_ids:
        found.append(f"{recount.repeated_ids} messages have a transactionId that their partition holds already")
    return found


def _of_partitions(figures: QueueFigures, recount: Recount) -> list[str]:
    names = sorted({*figures.partitions, *recount.partitions})
    return [
        f"partition {name!r}: {recount.partitions[name]} messages are stored; the server counts {counted}"
        for name in names
        if (counted := figures.partitions.get(name, 0)) != recount.partitions[name]
    ]


def _of_group(group: GroupFigures, figures: QueueFigures, recount: Recount) -> list[str]:
    found = []
    if group.lag > recount.stored:
        found.append(f"group {group.name!r}: {group.lag} messages wait; {recount.stored} are stored")
    if not 0 <= group.leased <= group.lag:
        found.append(f"group {group.name!r}: {group.leased} messages are leased, of {group.lag} that wait")
    if done_of(group, figures) < 0:
        total = group.lag + group.dead
        found.append(f"group {group.name!r}: {total} messages wait or are dead; {figures.next_seq - 1} were stored")
    return found


def done_of(group: GroupFigures, figures: QueueFigures) -> int:
    return figures.next_seq - 1 - group.lag - group.dead
