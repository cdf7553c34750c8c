"""The body of a problem: what a client decides by."""

from __future__ import annotations

import json

import pytest

from forebay.api.problems import problem_of
from forebay.errors import QueueFull, StoreUnavailable


@pytest.mark.parametrize("is_unknown", [False, True])
def test_store_that_cannot_answer_says_whether_the_outcome_is_unknown(is_unknown: bool) -> None:
    problem = problem_of(StoreUnavailable("gone", is_outcome_unknown=is_unknown))
    assert problem.status == 503
    assert json.loads(problem.body())["outcomeUnknown"] is is_unknown


def test_refusal_says_nothing_of_an_outcome() -> None:
    assert "outcomeUnknown" not in json.loads(problem_of(QueueFull("orders", 5, 5)).body())
