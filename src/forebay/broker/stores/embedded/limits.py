"""How much the embedded store does at once, before its thread serves other requests."""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.overview import PIECE_LETTERS_MAX


class EmbeddedLimits(NamedTuple):
    record_messages_max: int = 100_000
    """What a queue gets in one cycle is cut into records of so many messages."""
    queues_at_once_max: int = 8
    """Stored as a whole by one push, or by one turn of a replay: each takes a sync of its own."""
    counted_places_max: int = 4_000
    """Partitions, times groups, of which the messages that wait are counted in one turn: about 20 ms."""
    unwritten_shares_max: int = 1024
    unwritten_messages_max: int = 16_384
    unwritten_bytes_max: int = 64 << 20
    """How much of the index waits in memory at the most, and so has to be read again after a crash."""
    listed_partitions_max: int = 5_000
    """Of a queue with more, the list of those that have something for a group is made beside the store's thread."""
    reach_messages: int = 500
    """How many messages a pop looks at where those before them had waited too long, whatever the batch is."""
    buried_messages_max: int = 5_000
    """How many of one partition are buried in one turn, or passed because they are for other groups. The pop goes on
    behind them in its next turn."""
    walked_messages_max: int = 20_000
    """How many messages retention looks at in one turn."""
    removed_partitions_max: int = 300
    """Of how many partitions one turn removes messages, or, of a deleted queue, everything."""
    removed_rows_max: int = 5_000
    """Rows of deleted queues and groups that one turn removes."""
    removed_tags_max: int = 200
    removed_traces_max: int = 200
    letters_max: int = PIECE_LETTERS_MAX
    """Dead letters that one turn replays or removes."""
