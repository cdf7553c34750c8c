"""Where parcels go after a step, and which rows of a commit are theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.definition import FlowDefinition, Source, Step
from forebay.dispatch.routing import LeasedStep, Onward, dealt, ended_as, is_same, parcel_state, route
from forebay.dispatch.values import Child, Outcome, Range
from forebay.errors import InvariantBroken
from forebay.model.message import SeqRange

STEPS = tuple(Step(action=f"do-{n}", action_class="parse") for n in range(2))
SHOP = FlowDefinition(name="shop", source=Source(queue="orders"), steps=STEPS)
KNOWN = {("shop", 1): SHOP}


def leased(did: str, step: int = 0, state: str = "LEASED") -> LeasedStep:
    return LeasedStep(did, step, "shop", f"do-{step}", "parse", state, 7, 1, "lease", '[["orders",1,9]]', 9, 0, 1)


def onward(*outputs: tuple[str, int] | None) -> list[Onward]:
    return [Onward(f"p{n}", SHOP, 1, n, [Range("orders", 1, 9)], 9, 90, output) for n, output in enumerate(outputs)]


def test_completed_parcel_reads_on_what_it_read() -> None:
    plan = route([leased("a")], [Outcome("a", "COMPLETE")], KNOWN, [])
    assert plan.onward == [Onward("a", SHOP, 1, 7, [Range("orders", 1, 9)], 9, 0)]
    assert plan.left_out == []


def test_parcel_ends_with_its_last_step() -> None:
    plan = route([leased("a", step=1)], [Outcome("a", "COMPLETE")], KNOWN, [])
    assert plan.onward == []


def test_children_of_the_last_step_are_finished() -> None:
    outcome = Outcome("a", "COMPLETE", children=[Child([Range("orders", 1, 4)], 4)])
    plan = route([leased("a", step=1)], [outcome], KNOWN, ["child"])
    assert [(child.did, child.is_finished) for child in plan.children] == [("child", True)]
    assert plan.onward == []


def test_what_no_outcome_tells_of_is_left_out() -> None:
    plan = route([leased("a"), leased("b")], [Outcome("b", "FILTERED")], KNOWN, [])
    assert [step.did for step in plan.left_out] == ["a"]


def test_definition_that_is_gone_is_a_bug() -> None:
    with pytest.raises(InvariantBroken, match="version 1 of flow 'shop'"):
        route([leased("a")], [Outcome("a", "COMPLETE")], {}, [])


def test_parcel_without_rows_left_is_filtered() -> None:
    outcome = Outcome("a", "COMPLETE", output=("between", 0))
    assert ended_as(outcome) == "FILTERED"
    assert parcel_state("FILTERED", outcome, goes_on=False) == "FILTERED"


def test_completion_is_the_same_when_steps_ended_as_it_says() -> None:
    outcomes = [Outcome("a", "COMPLETE"), Outcome("b", "ERROR")]
    assert is_same([leased("a", state="COMPLETE"), leased("b", state="ERROR")], outcomes)
    assert is_same([leased("a", state="COMPLETE")], outcomes)  # the other was queued again
    assert not is_same([leased("a", state="FILTERED")], outcomes)
    assert not is_same([leased("a", state="CANCELLED")], outcomes)
    assert not is_same([], outcomes)


def test_part_of_a_range_is_of_the_same_queue_unless_it_says_otherwise() -> None:
    step = leased("a")._replace(ranges='[["orders",1,9,"1-7",0],["other",1,9]]')
    parts = [Range("orders", 1, 4), Range("orders", 5, 9, "2-7", 3), Range("other", 2, 3), Range("third", 1, 1)]
    plan = route([step], [Outcome("a", "COMPLETE", children=[Child(parts, 9)])], KNOWN, ["c"])
    assert plan.children[0].child.ranges == plan.onward[0].ranges
    assert plan.onward[0].ranges == [
        Range("orders", 1, 4, "1-7", 0),
        Range("orders", 5, 9, "2-7", 3),
        Range("other", 2, 3),
        Range("third", 1, 1),
    ]


def test_rows_of_a_commit_are_dealt_in_the_order_of_the_outcomes() -> None:
    committed = {"x": SeqRange(11, 15), "y": SeqRange(4, 4)}
    parcels = dealt(onward(("x", 2), ("y", 1), None, ("x", 3)), committed, {"x": "1-7", "y": "2-7"})
    assert [parcel.ranges for parcel in parcels] == [
        [Range("x", 11, 12, "1-7", 0)],
        [Range("y", 4, 4, "2-7", 0)],
        [Range("orders", 1, 9)],
        [Range("x", 13, 15, "1-7", 0)],
    ]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 60))
def test_every_committed_row_is_in_exactly_one_parcel(announced: list[int], committed: int) -> None:
    parcels = dealt(onward(*(("x", rows) for rows in announced)), {"x": SeqRange(1, committed)}, {})
    seqs = [seq for parcel in parcels for _, first, last, *_ in parcel.ranges for seq in range(first, last + 1)]
    assert seqs == list(range(1, committed + 1))
    assert sum(parcel.messages for parcel in parcels) == committed
