"""What scopes and patterns mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.access.patterns import KNOWN_NAMES_MAX, QueuePatterns
from forebay.access.scopes import ALL_BITS, FILE_BITS, NAMES, Scope, bits_of, names_of


@pytest.mark.parametrize(
    ("pattern", "queue", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders", "Orders", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.west", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXeu", False),
        ("orders.*", "my.orders.eu", False),
        ("*", "anything\nat all", True),
        ("*.eu", "orders.eu", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "acb", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a?", "ab", False),
    ],
)
def test_only_a_star_stands_for_others(pattern: str, queue: str, fits: bool) -> None:
    assert QueuePatterns([pattern]).fit(queue) is fits


def test_any_of_several_patterns_will_do_and_none_fits_nothing() -> None:
    several = QueuePatterns(["orders", ".flow.orders.*"])
    assert [name for name in ("orders", ".flow.orders.x", "bills", "") if several.fit(name)] == [
        "orders",
        ".flow.orders.x",
    ]
    assert not QueuePatterns([]).fit("")


@given(st.text(max_size=30), st.text(max_size=30))
def test_pattern_without_a_star_fits_itself_alone(pattern: str, name: str) -> None:
    pattern = pattern.replace("*", "")
    assert QueuePatterns([pattern]).fit(name) is (name == pattern)


def test_names_that_were_judged_are_remembered_up_to_a_limit() -> None:
    some = QueuePatterns(["q1*"])
    names = [f"q{number}" for number in range(KNOWN_NAMES_MAX + 100)]
    assert sum(map(some.fit, names)) == sum(name.startswith("q1") for name in names)
    assert 0 < len(some._known) <= KNOWN_NAMES_MAX


def test_no_scope_includes_another_but_admin_includes_all() -> None:
    assert [bits_of([name]) for name in ("read", "write", "consume")] == [Scope.READ, Scope.WRITE, Scope.CONSUME]
    assert bits_of(["admin"]) == ALL_BITS
    assert all(ALL_BITS & scope for scope in Scope if scope)
    with pytest.raises(KeyError):
        bits_of(["root"])


@given(st.sets(st.sampled_from(sorted(set(NAMES) - {"admin"})), min_size=1))
def test_scopes_are_called_what_they_were_made_from(names: set[str]) -> None:
    assert set(names_of(bits_of(names))) == names
    assert names_of(bits_of([*names, "admin"])) == ["admin"]


def test_write_of_a_keys_file_allows_what_it_always_has() -> None:
    assert FILE_BITS["write"] == ALL_BITS & ~Scope.ADMIN
    assert names_of(FILE_BITS["write"]) == ["read", "write", "consume"]
