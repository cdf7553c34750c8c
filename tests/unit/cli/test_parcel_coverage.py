"""What of a source is in two parcels, and what is in none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.cli.parcel_coverage import Coverage, Span, coverage_of


def test_parcels_that_follow_each_other_cover_everything() -> None:
    assert coverage_of([Span(11, 20), Span(1, 10)], 21) == Coverage([], [])


def test_source_that_was_not_cut_yet_misses_nothing() -> None:
    assert coverage_of([], 1) == Coverage([], [])


def test_gap_and_overlap_are_found() -> None:
    found = coverage_of([Span(1, 10), Span(8, 12), Span(15, 20)], 23)
    assert found == Coverage([Span(8, 10)], [Span(13, 14), Span(21, 22)])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=8), st.integers(0, 5))
def test_it_is_what_counting_each_message_finds(drawn: list[tuple[int, int]], behind: int) -> None:
    spans = [Span(first, first + size) for first, size in drawn]
    next_seq = max(span.last for span in spans) + 1 + behind
    counts = {
        seq: sum(span.first <= seq <= span.last for span in spans)
        for seq in range(min(span.first for span in spans), next_seq)
    }
    found = coverage_of(spans, next_seq)
    missing = {seq for span in found.missing for seq in range(span.first, span.last + 1)}
    doubled = {seq for span in found.doubled for seq in range(span.first, span.last + 1)}
    assert missing == {seq for seq, count in counts.items() if count == 0}
    assert doubled == {seq for seq, count in counts.items() if count > 1}
