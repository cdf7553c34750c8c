"""Distributions of durations: buckets, quantiles, differences, and how they stand on the page for Prometheus."""

from __future__ import annotations

import math
import statistics
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.histogram import LONG, SHORT, Histogram
from forebay.telemetry import metrics
from forebay.telemetry.page import Page

durations = st.lists(st.floats(0.00001, 29.0), min_size=1, max_size=200)


def filled(seconds: list[float], bounds: tuple[float, ...] = SHORT) -> Histogram:
    histogram = Histogram(bounds)
    for one in seconds:
        histogram.note(one)
    return histogram


@given(durations, st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_to_within_its_bucket(seconds: list[float], share: float) -> None:
    found = filled(seconds).now().quantile(share)
    assert found is not None
    exact = sorted(seconds)[max(math.ceil(share * len(seconds)), 1) - 1]
    place = next(place for place, bound in enumerate(SHORT) if exact <= bound)
    low, high = (SHORT[place - 1] if place else 0.0), SHORT[place]
    assert low <= found <= high


@given(durations, durations)
def test_what_came_since_is_the_difference_of_two_moments(first: list[float], second: list[float]) -> None:
    histogram = filled(first)
    before = histogram.now()
    for one in second:
        histogram.note(one)
    since = histogram.now().since(before)
    assert since.counts == filled(second).now().counts
    assert since.sum_seconds == pytest.approx(sum(second))


def test_nothing_has_no_quantile_and_what_is_too_long_counts_as_the_longest() -> None:
    assert Histogram().now().quantile(0.5) is None
    assert filled([1e6]).now().quantile(0.5) == SHORT[-1]
    assert filled([-1.0]).now().counts[0] == 1  # a clock was set back
    assert statistics.median(LONG) == 5.0


def test_buckets_on_the_page_are_cumulative_and_end_with_infinity() -> None:
    page = Page()
    page.add_histogram(metrics.PUSH_SECONDS, filled([0.0001, 0.0002, 0.3, 99.0]).now())
    lines = page.lines()
    assert lines[1] == "# TYPE forebay_push_seconds histogram"
    assert lines[2] == 'forebay_push_seconds_bucket{le="0.0001"} 1'
    assert 'forebay_push_seconds_bucket{le="0.5"} 3' in lines
    assert lines[-3:] == [
        'forebay_push_seconds_bucket{le="+Inf"} 4',
        "forebay_push_seconds_sum 99.300300",
        "forebay_push_seconds_count 4",
    ]
    labelled = Page("metrics_governor")
    labelled.add_histogram(metrics.SEND_SECONDS, filled([1.0]).now(), "lake")
    assert labelled.lines()[-1] == 'metrics_governor_queue_export_seconds_count{destination="lake"} 1'


def test_nothing_is_lost_between_threads() -> None:
    histogram = Histogram()

    def fill() -> None:
        for _ in range(20_000):
            histogram.note(0.002)

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        histogram.now()
    for thread in threads:
        thread.join()
    assert histogram.now().count == 80_000
    assert histogram.now().sum_seconds == pytest.approx(160)
