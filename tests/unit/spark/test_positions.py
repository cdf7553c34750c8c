"""Offsets, limits and splitting: ranges neither overlap nor leave anything out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.spark.positions import (
    EARLIEST,
    LATEST,
    Bounds,
    Offset,
    Position,
    SeqRange,
    batch_end,
    loss,
    offset_position,
    resolve,
    rows_per_task,
    split,
    time_position,
)

SEQS = st.integers(1, 10**12)


@given(start=SEQS, size=st.integers(0, 5000), tasks=st.integers(1, 64), rows=st.integers(1, 1000))
def test_tasks_cover_the_range_in_order_and_once(start: int, size: int, tasks: int, rows: int) -> None:
    parts = split(SeqRange(start, start + size), tasks, rows)
    assert all(0 < part.size <= rows for part in parts)
    edges = [seq for part in parts for seq in part]
    assert edges[::2] == ([start, *edges[1:-1:2]] if size else [])
    assert edges[-1:] == ([start + size] if size else [])
    assert len(parts) >= min(tasks, size)


@pytest.mark.parametrize(
    ("size", "cores", "tasks"),
    [
        (1, 2, 1),
        (100_000, 2, 1),
        (100_001, 2, 2),
        (1_000_000, 2, 2),
        (1_000_001, 2, 4),
        (1_000_000, 8, 8),
        (700_000, 8, 7),
        (1_000_000, None, 10),
    ],
)
def test_tasks_are_few_and_large_where_the_cores_are_known(size: int, cores: int | None, tasks: int) -> None:
    parts = split(SeqRange(5, 5 + size), 1, rows_per_task(size, cores))
    assert len(parts) == tasks
    assert max(part.size for part in parts) - min(part.size for part in parts) <= 1


@given(
    start=st.integers(1, 1000),
    first=st.integers(1, 1000),
    kept=st.integers(0, 1000),
    rows=st.none() | st.integers(1, 500),
    size=st.none() | st.integers(1, 10_000),
    per_message=st.integers(1, 100),
)
def test_batches_within_their_limits_reach_the_end(
    start: int, first: int, kept: int, rows: int | None, size: int | None, per_message: int
) -> None:
    bounds = Bounds(first, first + kept, bytes=kept * per_message)
    seq = start
    for _ in range(3000):
        end = batch_end(seq, bounds, rows, size)
        read = end - max(seq, first)
        assert end >= seq
        assert rows is None or read <= rows
        assert size is None or read <= max(1, size // per_message)
        if end == seq:
            break
        seq = end
    assert seq == max(start, bounds.next_seq)


def test_limit_counts_messages_that_are_kept_not_those_that_are_gone() -> None:
    assert batch_end(1, Bounds(1000, 2000), 10, None) == 1010


def test_bytes_limit_is_no_limit_where_the_server_does_not_tell_bytes() -> None:
    assert batch_end(1, Bounds(1, 100), None, 10) == 100


@pytest.mark.parametrize(
    ("position", "seq"),
    [(EARLIEST, 5), (LATEST, 9), (Position(seq=2), 2), (Position(time="t"), 7)],
)
def test_positions_are_found_in_the_bounds(position: Position, seq: int) -> None:
    assert resolve(position, Bounds(5, 9, seq_at_time=7)) == seq


@given(SEQS)
def test_offsets_of_a_checkpoint_are_read_back(seq: int) -> None:
    assert Offset.read(Offset(seq).as_json()) == (seq, None, None, 0, None)
    whole = Offset(seq, "7-1", "r", seq + 1, seq)
    assert Offset.read(whole.as_json()) == whole


@pytest.mark.parametrize(
    ("begin", "bounds", "gone"),
    [
        (Offset(5), Bounds(1, 20), None),
        (Offset(5), Bounds(1, 20, removed_seq=4), None),
        (Offset(5), Bounds(1, 20, removed_seq=5), (5, 6)),
        (Offset(5), Bounds(1, 20, removed_seq=9), (5, 10)),
        (Offset(5, removed=9), Bounds(1, 20, removed_seq=9), None),
        (Offset(5, removed=9), Bounds(1, 20, removed_seq=10), (5, 11)),
        (Offset(5), Bounds(1, 20, lost=(SeqRange(2, 5),)), None),
        (Offset(5), Bounds(1, 20, lost=(SeqRange(2, 6), SeqRange(8, 10))), (5, 10)),
    ],
)
def test_loss_is_what_is_gone_and_was_not_read(begin: Offset, bounds: Bounds, gone: tuple[int, int] | None) -> None:
    assert loss(begin, bounds) == gone


@pytest.mark.parametrize(
    "offset", [{}, {"seq": 0}, {"seq": "1"}, {"seq": True}, {"seq": 1, "x": 2}, {"partition": 1}, []]
)
def test_other_offsets_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="seq"):
        Offset.read(offset)


@pytest.mark.parametrize("text", ["", "first", "7", "{", "[1]", "null", '{"seq": true}'])
def test_nonsense_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest or"):
        offset_position(text)


@pytest.mark.parametrize("text", ['{"seq": 0}', '{"seq": -7}'])
def test_seq_before_the_first_is_told_where_seqs_begin(text: str) -> None:
    with pytest.raises(ValueError, match="seqs begin at 1"):
        offset_position(text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500000Z"),
        ("2026-01-31 12:00:00", "2026-01-31T12:00:00.000000Z"),
        ("1767225600000", "2026-01-01T00:00:00.000000Z"),
    ],
)
def test_times_are_read_as_people_and_as_kafka_write_them(text: str, time: str) -> None:
    assert time_position(text) == Position(time=time)


@pytest.mark.parametrize("text", ["", "yesterday", "9" * 30])
def test_nonsense_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="a time such as"):
        time_position(text)
