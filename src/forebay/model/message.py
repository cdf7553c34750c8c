"""Messages as columns: what producers push, in the shape in which it is stored and read.

Columns and not objects, because everything behind the front door works on many messages at once: the log writes a
column with one join, Arrow reads it with none. Text columns hold UTF-8 bytes; they were bytes on the wire and will be
bytes on the disk, so nobody in between decodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

CREATED_US_MAX = 253_402_300_799_999_999
"""The end of the year 9999, the last moment that calendars and Arrow's readers agree on."""
PAYLOAD_IS_BINARY = 0b01
"""Flag: the payload is bytes as they came, not JSON text."""
PAYLOAD_IS_ENCRYPTED = 0b10
"""Flag: the payload is sealed with the queue's key."""
TRANSACTION_ID_IS_MINTED = 0b100
"""Flag: the producer gave no transaction id; the one that the message has was made for it."""


class SeqRange(NamedTuple):
    """The numbers that a batch got in its queue, both ends included."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in order, as columns of one length. A column that is None holds an empty value for every message.

    A batch with columns of unequal length or times outside the calendar cannot be made: `ValueError` says why.
    """

    payloads: Sequence[bytes]
    created_us: Sequence[int]
    """When each message was accepted, microseconds since 1970 UTC, at least 0."""
    partitions: Sequence[bytes] | None = None
    transaction_ids: Sequence[bytes] | None = None
    trace_ids: Sequence[bytes] | None = None
    headers: Sequence[bytes] | None = None
    """Per message one JSON object as text, or nothing."""
    flags: Sequence[int] | None = None
    """Per message the sum of the flags above."""
    variable_bytes: int = field(init=False, repr=False, compare=False)
    """Bytes of all the variable-length columns together."""
    created_range: tuple[int, int] = field(init=False, repr=False, compare=False)
    """The smallest and the largest `created_us`."""
    ends: tuple[list[int] | None, ...] = field(init=False, repr=False, compare=False)
    """For each of `texts`: 0, and where each value ends if they are put one behind the other."""

    def __post_init__(self) -> None:
        count = len(self.payloads)
        size = 0
        ends: list[list[int] | None] = []
        for column in self.texts():
            if column is None:
                ends.append(None)
                continue
            if len(column) != count:
                raise ValueError(f"columns of unequal length: {len(column)} values and {count} payloads")
            # One pass over the lengths serves both the limits and, later, the offsets on the disk.
            ends.append([*accumulate(map(len, column), initial=0)])
            size += ends[-1][-1]  # type: ignore[index]  # just made
        created, flags = self.created_us, self.flags
        if len(created) != count or (flags is not None and len(flags) != count):
            raise ValueError(f"columns of unequal length: created_us or flags, and {count} payloads")
        low, high = (min(created), max(created)) if count else (0, 0)
        if low < 0 or high > CREATED_US_MAX:
            raise ValueError(f"created_us {low}-{high} is outside 0-{CREATED_US_MAX}")
        object.__setattr__(self, "variable_bytes", size)
        object.__setattr__(self, "ends", tuple(ends))
        object.__setattr__(self, "created_range", (low, high))

    def __len__(self) -> int:
        return len(self.payloads)

    def texts(self) -> tuple[Sequence[bytes] | None, ...]:
        """The variable-length columns in the order in which they are stored."""
        return (self.partitions, self.transaction_ids, self.trace_ids, self.headers, self.payloads)
