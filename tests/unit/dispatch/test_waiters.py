"""Waiting workers: which of them are woken."""

from __future__ import annotations

import asyncio

from forebay.dispatch.waiters import Waiters, serves


def test_patterns_are_of_whole_names() -> None:
    assert serves(["geo.*"], "geo.locate")
    assert not serves(["geo"], "geo.locate")
    assert not serves([], "geo.locate")
    assert not serves(["Geo.*"], "geo.locate")


def test_as_many_are_woken_as_parcels_came_and_the_first_first() -> None:
    waiters = Waiters()
    with waiters.waiting(["*"]) as first, waiters.waiting(["*"]) as second, waiters.waiting(["*"]) as third:
        waiters.wake(["a", "b"])
        assert [event.is_set() for event in (first, second, third)] == [True, True, False]


def test_only_workers_that_serve_the_class_are_woken() -> None:
    waiters = Waiters()
    with waiters.waiting(["geo.*"]) as other, waiters.waiting(["parse"]) as served:
        waiters.wake(["parse", "parse"])
        assert (other.is_set(), served.is_set()) == (False, True)


def test_one_that_went_away_is_not_woken() -> None:
    waiters = Waiters()
    with waiters.waiting(["*"]) as gone:
        pass
    with waiters.waiting(["*"]) as waiting:
        waiters.wake(["a"])
    assert isinstance(gone, asyncio.Event)
    assert (gone.is_set(), waiting.is_set()) == (False, True)
