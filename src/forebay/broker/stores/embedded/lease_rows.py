"""How a delivery state stands in its row: as `delivery` encodes it, or in short.

Most leases are on messages that no consumer had before and that follow each other in the log, and most of them are
completed as a whole. Their ids would be most of the row, written with the pop and thrown away with the ack. So such a
lease is kept as the range that it covers; where more of it is needed than its end, the ids are read from the log again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import msgspec

from forebay.broker import delivery
from forebay.broker.delivery import DeliveryState, Pending, Undelivered
from forebay.model.queue import QueueOptions

_IS_SHORT = b"\xc1"
"""No value of MessagePack begins with it, so no state that `delivery` encodes does."""


class FreshLease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A lease on all messages from `first_seq` to `last_seq`, of one partition, each at its first attempt."""

    cursor_seq: int
    first_seq: int
    last_seq: int
    lease_id: str
    granted_us: int
    until_us: int
    finished: int

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1

    def is_held(self, lease_id: str, now_us: int) -> bool:
        return self.lease_id == lease_id and self.granted_us <= now_us < self.until_us

    def completed(self) -> DeliveryState:
        """All of it finished."""
        return DeliveryState(self.last_seq, finished=self.finished + self.count)

    def in_full(self, ids: Sequence[str]) -> DeliveryState:
        """With the ids of all its messages."""
        pending = map(Pending, range(self.first_seq, self.last_seq + 1), ids, repeat(1), repeat(True))
        return DeliveryState(
            self.cursor_seq, tuple(pending), self.lease_id, self.granted_us, self.until_us, self.finished
        )


_encode = msgspec.msgpack.Encoder().encode
_decode_short = msgspec.msgpack.Decoder(FreshLease).decode


def leased(
    state: DeliveryState,
    fresh: Undelivered,
    options: QueueOptions,
    now_us: int,
    lease_id: str,
    lease_seconds: int = 0,
) -> FreshLease | None:
    """What `delivery.claim` makes of messages, in short; None where that takes more than a range."""
    seqs = fresh.seqs
    if not delivery.takes_all(state, fresh, options) or seqs[-1] - seqs[0] != len(seqs) - 1:
        return None
    until_us = delivery.lease_end_us(options, now_us, lease_seconds)
    return FreshLease(state.cursor_seq, seqs[0], seqs[-1], lease_id, now_us, until_us, state.finished)


def encode(lease: FreshLease) -> bytes:
    return _IS_SHORT + _encode(lease)


def decode(row: bytes) -> DeliveryState | FreshLease:
    return _decode_short(memoryview(row)[1:]) if row.startswith(_IS_SHORT) else delivery.decode_state(row)


def is_leased(row: bytes, now_us: int) -> bool:
    """Whether a lease is held, by the row alone."""
    found = decode(row)
    if isinstance(found, DeliveryState):
        return found.is_leased_at(now_us)
    return found.is_held(found.lease_id, now_us)
