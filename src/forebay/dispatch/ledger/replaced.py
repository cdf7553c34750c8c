"""Parcels whose queue was deleted, or deleted and made again, while they waited: found before they are leased.

A range says which queue it means. Where that one is not there any more, its messages are gone, and those that another
queue has under the same seqs are none of the parcel's. No worker gets such a range:

| the flow's source | the parcel |
|---|---|
| `failOnDataLoss` | goes into ERROR with the numbers; resumed, it goes there again. A person cancels it |
| not, and it reads other messages too | is leased with those, and its history says what is gone |
| not, and it reads nothing else | is FILTERED, and its history says what is gone |

Ranges that an older Forebay has written do not say which queue they mean, and are leased as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forebay.broker.room_work import Ask, Edge, Work
from forebay.dispatch.ledger.enqueue import WARM
from forebay.dispatch.ledger.flow_work import count_lost
from forebay.dispatch.ledger.history import LOST, Event, history
from forebay.dispatch.ledger.holding import edges_of
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Loss, Missing, Range
from forebay.errors import QueueReplaced

ERROR, FILTERED = "ERROR", "FILTERED"
Key = tuple[str, int]
"""A did and a step."""


class Reader(NamedTuple):
    """A step that is about to be leased."""

    did: str
    step: int
    flow: str
    action: str
    ranges: Sequence[Range]
    is_loss_fatal: bool


class Settled(NamedTuple):
    ended: frozenset[Key] = frozenset()
    """Steps that are not to be leased: they ended."""
    shorter: Mapping[Key, Sequence[Range]] = {}
    """What steps read from now on that are leased without a part of their messages."""
    losses: Sequence[Loss] = ()


class _Found(NamedTuple):
    """A step some of whose ranges are of queues that are not there any more."""

    reader: Reader
    gone: Sequence[Range]
    left: Sequence[Range]
    text: str

    @property
    def key(self) -> Key:
        return self.reader.did, self.reader.step

    @property
    def ends_as(self) -> str:
        """Empty: it is leased with what is left."""
        if self.reader.is_loss_fatal:
            return ERROR
        return "" if self.left else FILTERED

    @property
    def lost(self) -> int:
        """How many messages it goes on without."""
        return 0 if self.ends_as == ERROR else sum(each.messages for each in self.gone)


def settle_replaced(readers: Sequence[Reader], now_us: int) -> Work[Settled]:
    """Take out what would read a queue that it does not mean. The classes of the steps are locked."""
    queues = {reading.queue for reader in readers for reading in reader.ranges if reading.identity}
    edges = yield from edges_of(sorted(queues))
    found = [each for reader in readers if (each := _looked_at(reader, edges)).gone]
    if not found:
        return Settled()
    ended = [each for each in found if each.ends_as]
    shorter = {each.key: each.left for each in found if not each.ends_as}
    if ended:
        rows = [(*each.key, each.ends_as, each.text if each.ends_as == ERROR else "", WARM) for each in ended]
        yield Ask(SQL["steps_end_waiting"], {"steps": rows})
        moved = [(each.reader.did, each.ends_as) for each in ended]
        yield Ask(SQL["parcels_move"], {"parcels": moved, "now_us": now_us})
    if shorter:
        changed = [(*key, left, sum(each.messages for each in left)) for key, left in shorter.items()]
        yield Ask(SQL["steps_set_ranges"], {"steps": changed})
    yield from history([event for each in found for event in _events(each, now_us)])
    lost: Counter[str] = Counter()
    for each in found:
        lost[each.reader.flow] += each.lost
    yield from count_lost(lost)
    losses = [Loss(each.reader.flow, each.reader.did, each.text, each.ends_as == ERROR) for each in found]
    return Settled(frozenset(each.key for each in ended), shorter, losses)


def _looked_at(reader: Reader, edges: Mapping[str, Edge]) -> _Found:
    gone = [reading for reading in reader.ranges if _is_gone(reading, edges)]
    left = [reading for reading in reader.ranges if reading not in gone]
    text = "; ".join(_words(reading, edges.get(reading.queue)) for reading in gone)
    return _Found(reader, gone, left, text[: DispatchLimits().error_chars_max])


def _events(found: _Found, now_us: int) -> list[Event]:
    event = Event(*found.key, found.reader.action, ERROR, now_us, text=found.text)
    if found.ends_as == ERROR:
        return [event]
    lost = event._replace(event=LOST)
    return [lost, lost._replace(event=FILTERED, text="")] if found.ends_as else [lost]


def _is_gone(reading: Range, edges: Mapping[str, Edge]) -> bool:
    edge = edges.get(reading.queue)
    return bool(reading.identity) and (edge is None or edge.identity != reading.identity)


def _words(gone: Range, edge: Edge | None) -> str:
    if edge is None:
        cause = f"it was deleted (identity {gone.identity})"
    else:
        cause = f"QueueReplaced: {QueueReplaced(gone.queue, gone.identity, edge.identity).message}"
    return str(Missing(gone.queue, gone.first_seq, gone.last_seq, gone.messages, cause))
