"""Warm or cold: the decisions, and what they promise over any sequence of arrivals, leases and refills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.tiering import ClassSizes, is_cold_mode, place_arriving, refill_amount


@pytest.mark.parametrize(
    ("warm", "cold", "was_cold", "is_cold"),
    [
        (0, 0, False, False),
        (4999, 0, False, False),
        (5000, 0, False, True),
        (5001, 0, False, True),  # the maximum was made smaller
        (0, 1, False, True),
        (4001, 0, True, True),
        (4000, 0, True, False),
        (4000, 1, True, True),
        (0, 1, True, True),
        (4500, 0, False, False),
    ],
)
def test_a_class_goes_cold_when_full_and_is_warm_again_at_80_percent_without_cold(
    warm: int, cold: int, was_cold: bool, is_cold: bool
) -> None:
    assert is_cold_mode(ClassSizes(warm, cold, was_cold), 5000) is is_cold


def test_what_arrives_together_fills_the_room_and_the_rest_goes_cold() -> None:
    assert place_arriving(ClassSizes(4990, 0, False), 9, 5000) == (9, False)
    assert place_arriving(ClassSizes(4990, 0, False), 10, 5000) == (10, True)
    assert place_arriving(ClassSizes(4990, 0, False), 11, 5000) == (10, True)
    assert place_arriving(ClassSizes(0, 1, True), 5, 5000) == (0, True)
    assert place_arriving(ClassSizes(0, 0, False), 0, 5000) == (0, False)


@pytest.mark.parametrize(
    ("warm", "cold", "amount"),
    [(4500, 9000, 0), (4499, 9000, 501), (4499, 3, 3), (0, 9000, 5000), (0, 0, 0), (6000, 9000, 0)],
)
def test_cold_parcels_become_warm_below_90_percent_up_to_the_maximum(warm: int, cold: int, amount: int) -> None:
    assert refill_amount(ClassSizes(warm, cold, True), 5000) == amount


@given(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.integers(0, 100), st.integers(1, 40))
def test_the_warm_tier_never_holds_more_than_its_maximum(
    warm: int, cold: int, was_cold: bool, arriving: int, capacity: int
) -> None:
    sizes = ClassSizes(warm, cold, was_cold)
    placed = place_arriving(sizes, arriving, capacity)
    assert 0 <= placed.warm <= arriving
    assert warm + placed.warm <= max(warm, capacity)
    assert warm + refill_amount(sizes, capacity) <= max(warm, capacity)
    assert placed.is_cold or placed.warm == arriving


@given(st.integers(1, 200))
def test_a_class_at_its_capacity_changes_its_mode_once_only(capacity: int) -> None:
    """One comes, one goes, at the brim: without hysteresis it would change with each of them."""
    sizes, changes = ClassSizes(capacity - 1, 0, False), 0
    for _ in range(50):
        placed = place_arriving(sizes, 1, capacity)
        changes += placed.is_cold is not sizes.is_cold
        sizes = ClassSizes(sizes.warm + placed.warm, sizes.cold + 1 - placed.warm, placed.is_cold)
        leased = min(1, sizes.warm)
        refilled = refill_amount(sizes._replace(warm=sizes.warm - leased), capacity)
        sizes = ClassSizes(sizes.warm - leased + refilled, sizes.cold - refilled, sizes.is_cold)
    # A class of a few parcels empties with every lease: for it, every lease is a fall below 80 %.
    assert changes <= 1 or capacity < 10


class Queue:
    """An action class with one flow, as a plain list."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.warm: list[int] = []
        self.cold: list[int] = []
        self.is_cold = False
        self.leased: list[int] = []
        self.next_place = 1

    @property
    def sizes(self) -> ClassSizes:
        return ClassSizes(len(self.warm), len(self.cold), self.is_cold)

    def arrive(self, count: int) -> None:
        places = list(range(self.next_place, self.next_place + count))
        self.next_place += count
        placed = place_arriving(self.sizes, count, self.capacity)
        self.warm += places[: placed.warm]
        self.cold += places[placed.warm :]
        self.is_cold = placed.is_cold

    def lease(self, count: int) -> None:
        self.leased += self.warm[:count]
        del self.warm[:count]

    def refill(self) -> None:
        amount = refill_amount(self.sizes, self.capacity)
        self.warm += self.cold[:amount]
        del self.cold[:amount]


ACTIONS = st.lists(st.tuples(st.sampled_from(["arrive", "lease", "refill"]), st.integers(0, 30)), max_size=60)


@given(ACTIONS, st.integers(1, 25))
def test_a_cold_parcel_is_not_overtaken_by_a_newer_warm_one(actions: list[tuple[str, int]], capacity: int) -> None:
    queue = Queue(capacity)
    for action, count in actions:
        if action == "arrive":
            queue.arrive(count)
        elif action == "lease":
            queue.lease(count)
        else:
            queue.refill()
        assert len(queue.warm) <= capacity
        assert not queue.cold or not queue.warm or max(queue.warm) < min(queue.cold)
    assert queue.leased == sorted(queue.leased)


@given(ACTIONS, st.integers(1, 25))
def test_every_parcel_is_leased_once_workers_keep_up(actions: list[tuple[str, int]], capacity: int) -> None:
    queue = Queue(capacity)
    for action, count in actions:
        if action == "arrive":
            queue.arrive(count)
    for _ in range(queue.next_place):
        queue.lease(capacity)
        queue.refill()
    assert queue.leased == list(range(1, queue.next_place))
    queue.arrive(1)
    assert queue.warm, "nothing waits cold any more, so the class is warm again"
