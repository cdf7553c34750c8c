"""Messages as columns: what producers push, in the shape in which it is stored and read.

Columns and not objects, because everything behind the front door works on many messages at once: the log writes a
column with one join, Arrow reads it with none. Text columns hold UTF-8 bytes; they were bytes on the wire and will be
bytes on the disk, so nothing in between decodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import Raw

SEQ_MAX = (1 << 63) - 1
CREATED_US_MAX = 253_402_300_799_999_999
"""The end of the year 9999, the last moment that calendars and Arrow's readers agree on."""
PAYLOAD_IS_BINARY = 0b01
"""Flag: the payload is bytes as they came, not JSON text."""
TRANSACTION_ID_IS_MINTED = 0b100
"""Flag: the producer gave no transaction id; the one that the message has was made for it."""


Payload = bytes | Raw
"""Bytes, or a part of a request that is not copied out of it."""


class SeqRange(NamedTuple):
    """The numbers that a batch got in its queue, both ends included."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in order, as columns of one length. A column that is None holds an empty value for every message.

    A batch with columns of unequal length or times outside the calendar cannot be made: `ValueError` says why.
    """

    payloads: Sequence[Payload]
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
    columns: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    """All columns in the order in which they are stored."""
    present: int = field(init=False, repr=False, compare=False)
    """Which of `columns` are there, one bit each."""
    ends: tuple[list[int] | None, ...] = field(init=False, repr=False, compare=False)
    """For each variable-length column: 0, and where each value ends if they are put one behind the other."""

    def __post_init__(self) -> None:
        created, flags, payloads = self.created_us, self.flags, self.payloads
        texts = (self.partitions, self.transaction_ids, self.trace_ids, self.headers, payloads)
        count, size, present = len(payloads), 0, 0b1 if flags is None else 0b11
        ends: list[list[int] | None] = []
        for bit, column in enumerate(texts, 2):
            if column is None:
                ends.append(None)
                continue
            if len(column) != count:
                raise ValueError(f"columns of unequal length: {len(column)} values and {count} payloads")
            # One pass over the lengths serves both the limits and, later, the offsets on the disk.
            ends.append(places := [*accumulate(map(len, column), initial=0)])
            size += places[-1]
            present |= 1 << bit
        if len(created) != count or (flags is not None and len(flags) != count):
            raise ValueError(f"columns of unequal length: created_us or flags, and {count} payloads")
        low, high = (min(created), max(created)) if count else (0, 0)
        if low < 0 or high > CREATED_US_MAX:
            raise ValueError(f"created_us {low}-{high} is outside 0-{CREATED_US_MAX}")
        set_field = object.__setattr__
        set_field(self, "variable_bytes", size)
        set_field(self, "created_range", (low, high))
        set_field(self, "columns", (created, flags, *texts))
        set_field(self, "present", present)
        set_field(self, "ends", tuple(ends))

    def __len__(self) -> int:
        return len(self.payloads)

    def texts(self) -> tuple[Sequence[bytes] | None, ...]:
        """The variable-length columns in the order in which they are stored."""
        return self.columns[2:]
