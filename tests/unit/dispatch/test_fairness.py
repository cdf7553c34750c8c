"""Turns: how parcels are divided between classes and flows."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.fairness import Turns, in_turn, shares

SIZES = st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=8)


@given(SIZES, st.integers(0, 200), st.integers(0, 100))
def test_all_is_given_that_there_is_and_no_more_than_each_has(sizes: dict[str, int], total: int, first: int) -> None:
    given_out = shares(sizes, total, first=first)
    assert sum(given_out.values()) == min(total, sum(sizes.values()))
    assert all(0 < amount <= sizes[name] for name, amount in given_out.items())


@given(SIZES, st.integers(0, 200), st.integers(0, 100))
def test_none_that_is_left_hungry_has_less_than_another(sizes: dict[str, int], total: int, first: int) -> None:
    given_out = shares(sizes, total, first=first)
    hungry = [given_out.get(name, 0) for name, size in sizes.items() if given_out.get(name, 0) < size]
    assert max(given_out.values(), default=0) - min(hungry, default=max(given_out.values(), default=0)) <= 1


def test_what_does_not_come_out_even_goes_round() -> None:
    sizes = {"a": 100, "b": 100, "c": 100}
    gone: Counter[str] = Counter()
    for turn in range(9):
        gone.update(shares(sizes, 1, first=turn))
    assert gone == {"a": 3, "b": 3, "c": 3}


def test_first_of_each_comes_before_the_second_of_any() -> None:
    assert in_turn([["a1", "a2", "a3"], [], ["c1"]]) == ["a1", "c1", "a2", "a3"]


def test_turn_is_of_the_one_that_was_served_longest_ago() -> None:
    turns: Turns[str] = Turns()
    served = []
    for _ in range(7):
        first, *_ = turns.in_order(["c", "a", "b"])
        turns.serve(first)
        served.append(first)
    assert "".join(served) == "abcabca"
    assert turns.in_order(["a", "new", "c"]) == ["new", "c", "a"]
