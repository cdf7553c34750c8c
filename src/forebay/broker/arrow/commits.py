"""Which commits are new, which are repeats, and which are refused. Pure decisions, the same in every store.

A commit is known by producer, epoch, write and queue: of each queue once. What is remembered of it is the content of
its rows, so that a repeat can be distinguished from another write that happens to have the same name:

| a commit of something that is committed already               | what follows                                        |
|---------------------------------------------------------------|-----------------------------------------------------|
| names the same stages: its answer was lost                    | a repeat: nothing is done, answered as before       |
| names other stages of the same content: it was computed again | the same                                            |
| names stages of another content                               | `CommitDiffers`: nothing is done                    |
| names stages that are not there, and others than before       | `StageUnknown`: nothing is done                     |

What an older Forebay committed has no content: it counts as equal to whatever is committed to its queue again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from forebay.broker.bulk import CommitOutcome, Content, StagesOf
from forebay.errors import CommitDiffers, StageUnknown
from forebay.model.message import SeqRange

NO_QUEUE = ""
"""Stands for the queue of a commit that has no stages and names none."""


class Committed(NamedTuple):
    """What was committed of one queue."""

    queue: str
    content: Content | None
    """None: an older Forebay did not note it."""
    request: str
    """Which stages were named: `request_of`."""
    messages: int
    duplicates: int
    first_seq: int
    """0 where no message was new."""


def request_of(stage_ids: Iterable[str]) -> str:
    """Stands for the stages that a commit names: two with the same ones are the same request."""
    return hashlib.sha256("\n".join(sorted(set(stage_ids))).encode()).hexdigest()[:32]


class Decision(NamedTuple):
    new: dict[str, Content]
    """Queues that are to get their rows."""
    earlier: list[Committed]
    """What of the request was done before."""

    def outcome(self, done: Sequence[Committed] = ()) -> CommitOutcome:
        """The answer, with what was done now."""
        all_of_it = [*self.earlier, *done]
        ranges = {
            one.queue: SeqRange(one.first_seq, one.first_seq + one.messages - 1) for one in all_of_it if one.messages
        }
        messages, duplicates = sum(one.messages for one in all_of_it), sum(one.duplicates for one in all_of_it)
        return CommitOutcome(not self.new, messages, duplicates, ranges)


def decide(
    wanted: StagesOf,
    stage_ids: Sequence[str],
    staged: Mapping[str, tuple[str, Content]],
    committed: Mapping[str, Committed],
) -> Decision:
    """`staged`: queue and content of the stages that are there; `committed`: what is, by queue, of this write."""
    unknown = [stage_id for stage_id in stage_ids if stage_id not in staged]
    if unknown:
        request = request_of(stage_ids)
        earlier = [one for one in committed.values() if one.request == request or one.content is None]
        if not earlier:
            raise StageUnknown(unknown, wanted.producer, wanted.epoch)
        return Decision({}, earlier)
    contents: dict[str, Content] = {} if wanted.queue is None else {wanted.queue: Content()}
    for stage_id in dict.fromkeys(stage_ids):
        queue, content = staged[stage_id]
        contents[queue] = contents.get(queue, Content()).plus(content)
    if not contents:
        # A commit of nothing that names no queue speaks of all of them.
        contents = dict.fromkeys(committed or (NO_QUEUE,), Content())
    for queue, content in contents.items():
        known = committed[queue].content if queue in committed else None
        if known is not None and known != content:
            raise CommitDiffers(queue, wanted.producer, wanted.epoch, wanted.write, str(known), str(content))
    new = {queue: content for queue, content in contents.items() if queue not in committed}
    return Decision(new, [committed[queue] for queue in contents if queue in committed])
