"""What of a range is gone, from what a server tells of the queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.model.missing import DAMAGED, REMOVED, REPLACED, Gap, QueueState, gaps_in

SEQS = st.integers(1, 60)
LOST = st.tuples(SEQS, st.integers(0, 9), st.integers(1, 10)).map(
    lambda found: (found[0], found[0] + found[1], min(found[2], found[1] + 1))
)


def test_whole_range_is_gone_with_its_queue() -> None:
    whole = [Gap(3, 12, 10, REPLACED)]
    assert gaps_in(3, 12, "1-7", 0, None) == whole
    assert gaps_in(3, 12, "1-7", 0, QueueState("2-7")) == whole
    assert gaps_in(3, 12, "1-7", 0, QueueState("1-7")) == []


def test_range_or_server_that_knows_no_identity_is_taken_at_its_word() -> None:
    assert gaps_in(3, 12, "", None, QueueState("2-7", removed_seq=9)) == []
    assert gaps_in(3, 12, "1-7", 0, QueueState("")) == []


def test_what_was_removed_in_the_range_is_gone_unless_that_was_known() -> None:
    assert gaps_in(3, 12, "1-7", 0, QueueState("1-7", removed_seq=2)) == []
    assert gaps_in(3, 12, "1-7", 0, QueueState("1-7", removed_seq=5)) == [Gap(3, 5, 3, REMOVED)]
    assert gaps_in(3, 12, "1-7", 0, QueueState("1-7", removed_seq=99)) == [Gap(3, 12, 10, REMOVED)]
    assert gaps_in(3, 12, "1-7", 5, QueueState("1-7", removed_seq=5)) == []
    assert gaps_in(3, 12, "1-7", 5, QueueState("1-7", removed_seq=6)) == [Gap(3, 6, 4, REMOVED)]


def test_lost_records_are_gone_each_partition_with_its_own_number() -> None:
    of_two_partitions = [(4, 8, 3), (5, 9, 3), (30, 40, 11)]
    assert gaps_in(1, 20, "", None, QueueState("", lost=of_two_partitions)) == [Gap(4, 9, 6, DAMAGED)]
    assert gaps_in(6, 7, "", None, QueueState("", lost=of_two_partitions)) == [Gap(6, 7, 2, DAMAGED)]
    behind_what_was_removed = QueueState("", removed_seq=5, lost=[(4, 8, 3)])
    assert gaps_in(1, 20, "", 0, behind_what_was_removed) == [Gap(1, 5, 5, REMOVED), Gap(6, 8, 3, DAMAGED)]


@given(SEQS, st.integers(-1, 30), st.none() | SEQS, SEQS, st.lists(LOST, max_size=6))
def test_gaps_are_in_order_within_the_range_and_no_larger_than_they_can_be(
    first: int, more: int, removed_up_to: int | None, removed: int, lost: list[tuple[int, int, int]]
) -> None:
    gaps = gaps_in(first, first + more, "1-7", removed_up_to, QueueState("1-7", removed, lost))
    edges = [seq for gap in gaps for seq in (gap.first_seq, gap.last_seq)]
    assert edges == sorted(edges)
    assert all(first <= seq <= first + more for seq in edges)
    assert all(0 < gap.messages <= gap.last_seq - gap.first_seq + 1 for gap in gaps)
    pieces = [(seq, seq) for seq in range(first, first + more + 1)]
    gone = [gaps_in(*piece, "1-7", removed_up_to, QueueState("1-7", removed, lost)) for piece in pieces]
    covered = {seq for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)}
    assert {seq for (seq, _), found in zip(pieces, gone, strict=True) if found} == covered, "cut as you like"
