"""How much one transaction of the PostgreSQL store removes or buries, and how often a pop looks."""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.messages import ANSWER_BYTES_MAX
from forebay.broker.overview import PIECE_LETTERS_MAX


class PostgresLimits(NamedTuple):
    removed_rows_max: int = 2_000
    removed_bytes_max: int = 64 << 20
    """Of payloads: a large one takes PostgreSQL as long as thousands of small ones."""
    letters_max: int = PIECE_LETTERS_MAX
    letters_bytes_max: int = ANSWER_BYTES_MAX
    """Dead letters that are replayed or removed at once, and their payloads."""
    reach_messages_min: int = 500
    """How many are read at once where all before them had waited too long, whatever the batch is."""
    buried_messages_max: int = 10_000
    buried_bytes_max: int = ANSWER_BYTES_MAX
    """What one transaction buries before it is content: a backlog that takes longer than a request may take would be
    rolled back, and begun again by every pop."""
    rounds_max: int = 20
    """How often one pop looks for further partitions when those it got had nothing that may be delivered now, or more
    dead messages than one transaction buries."""
