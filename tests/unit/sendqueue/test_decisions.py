"""Backoff, scaling, sizing and spilling: pure decisions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sendqueue.backoff import Backoff
from forebay.sendqueue.scaling import Latency, Scaler
from forebay.sendqueue.sizing import adapted_bytes, memory_limit_bytes, resident_bytes
from forebay.sendqueue.spilling import Level, Spilling


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 5), (2, 10), (3, 20), (7, 300), (10_000, 300)])
def test_waits_double_up_to_the_cap_within_a_tenth(attempts: int, seconds: float) -> None:
    found = [Backoff().seconds(attempts) for _ in range(200)]
    assert all(0.9 * seconds <= wait <= 1.1 * seconds for wait in found)
    assert len(set(found)) > 1


def test_the_destination_is_never_asked_again_before_it_wants_to_be() -> None:
    assert Backoff().seconds(1, retry_after=120) == 120
    assert Backoff(is_enabled=False).seconds(9) < 6


def test_workers_grow_while_batches_pile_up_and_the_destination_is_quick() -> None:
    scaler = Scaler(1, 4, 2)
    assert [scaler.decide(500, 0.1, now) for now in (5, 10, 15)] == [3, 4, 4]
    assert scaler.decide(500, 2.0, 20) == 4
    assert scaler.adjustments == {"up": 2, "down": 0}


def test_workers_are_halved_when_there_has_been_little_to_do_for_a_while() -> None:
    scaler = Scaler(1, 16, 16)
    assert [scaler.decide(0, 0.1, now) for now in (0, 15, 29, 30, 45, 60, 200, 201)] == [16, 16, 16, 8, 8, 4, 2, 2]
    assert scaler.decide(50, 0.1, 202) == 2


def test_latency_follows_slowly() -> None:
    latency = Latency()
    latency.add(1.0)
    assert latency.seconds == 1.0
    latency.add(2.0)
    assert latency.seconds == pytest.approx(1.3)


def test_the_memory_limit_is_the_smallest_that_applies(tmp_path: Path) -> None:
    physical = memory_limit_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit_bytes(tmp_path) == physical
    (tmp_path / "memory.max").write_text("536870912\n")
    assert memory_limit_bytes(tmp_path) == 536870912
    assert 1_000_000 < resident_bytes() < physical


def test_an_adaptive_limit_shrinks_under_pressure_and_grows_back() -> None:
    limit = 1000
    for expected in (750, 562, 421):
        limit = adapted_bytes(limit, 1000, 0.95, 0.85)
        assert limit == expected
    for _ in range(40):
        limit = adapted_bytes(limit, 1000, 0.95, 0.85)
    assert limit == 125
    for _ in range(40):
        limit = adapted_bytes(limit, 1000, 0.5, 0.85)
    assert limit == 1000


def test_levels_rise_at_the_threshold_and_fall_one_at_a_time() -> None:
    spilling = Spilling(0.8)
    assert not spilling.goes_to_disk(0.79, is_disk_empty=True)
    assert [spilling.goes_to_disk(0.85, is_disk_empty=True) for _ in range(4)] == [True, False, True, False]
    assert spilling.goes_to_disk(0.95, is_disk_empty=True)
    assert spilling.goes_to_disk(0.85, is_disk_empty=False)
    spilling.goes_to_disk(0.5, is_disk_empty=False)
    assert spilling.level == Level.ALTERNATING.value
    assert not spilling.goes_to_disk(0.5, is_disk_empty=False)
    assert spilling.level == Level.MEMORY.value


@given(st.lists(st.floats(0.71, 0.89), min_size=1, max_size=50))
def test_a_load_near_the_threshold_does_not_flap(fills: list[float]) -> None:
    spilling = Spilling(0.8)
    levels = []
    for fill in fills:
        spilling.goes_to_disk(fill, is_disk_empty=False)
        levels.append(spilling.level)
    assert sum(a != b for a, b in pairwise(levels)) <= 1


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=50))
def test_in_fifo_order_nothing_goes_to_memory_while_older_batches_are_on_disk(steps: list[tuple[float, bool]]) -> None:
    spilling = Spilling(0.8, is_fifo=True)
    for fill, is_empty in steps:
        assert spilling.goes_to_disk(fill, is_disk_empty=is_empty) or is_empty
