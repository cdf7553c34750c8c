"""What the server did, minute by minute."""

from __future__ import annotations

from forebay.api.history import MINUTE_US, MINUTES_MAX, Figures, History, Span

START_US = 1_700_000_000_000_000 // MINUTE_US * MINUTE_US


def noted(*notes: tuple[float, int]) -> History:
    """A history of pushes: at so many minutes, so many in all."""
    history = History()
    for minutes, pushed in notes:
        history.note(START_US + int(minutes * MINUTE_US), Figures(pushed=pushed))
    return history


def pushes(history: History, from_minute: float, to_minute: float) -> list[tuple[int, int]]:
    span = Span(START_US + int(from_minute * MINUTE_US), START_US + int(to_minute * MINUTE_US))
    return [((point.start_us - START_US) // MINUTE_US, point.figures.pushed) for point in history.points(span)]


def test_each_minute_has_what_was_done_in_it() -> None:
    history = noted((0, 5), (0.5, 7), (1.2, 7), (2.9, 10))
    assert pushes(history, 0, 60) == [(0, 7), (1, 0), (2, 3)]


def test_a_span_leaves_out_what_lies_outside() -> None:
    history = noted((0, 1), (1, 3), (2, 6), (3, 10))
    assert pushes(history, 1, 2.5) == [(1, 2), (2, 3)]
    assert pushes(history, 90, 99) == []


def test_a_long_span_has_few_points() -> None:
    history = noted(*((minute, minute + 1) for minute in range(120)))
    points = pushes(history, 0, 120)
    assert len(points) <= 120 // 5 + 1
    assert sum(count for _, count in points) == 120
    assert [Span(0, minutes * MINUTE_US).bucket_minutes for minutes in (60, 61, 361, 1441, 20_000)] == [
        1,
        5,
        15,
        60,
        360,
    ]


def test_no_more_than_a_day_is_kept() -> None:
    history = noted(*((minute, minute) for minute in range(MINUTES_MAX + 50)))
    assert len(history._minutes) == MINUTES_MAX


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    history = noted((5, 5), (2, 9), (6, 10))
    assert pushes(history, 0, 60) == [(5, 9), (6, 1)]


def test_processor_and_memory_are_this_process() -> None:
    (point,) = noted((0, 1)).points(Span(START_US, START_US + MINUTE_US))
    assert point.figures.user_us > 0
    assert point.rss_bytes > 1_000_000
