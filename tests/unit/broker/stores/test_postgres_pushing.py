"""What a push asks, and when it asks again: the plan without a database."""

from __future__ import annotations

import pytest

from fixtures.store_steps import item
from forebay.broker.stores.postgres.pushing import (
    PARTITIONS_KNOWN_MAX,
    Decided,
    MissingQueues,
    PartitionNumbers,
    PushPlan,
    Steps,
)
from forebay.broker.stores.postgres.queries import Statement, query
from forebay.model.push_run import PushRun, run_of_one

ORDERS = (7, "orders", 0, False, 5, 4, False)
"""The row of a locked queue: its next seq is 5, and 4 messages are kept."""
TIME_US = 1_000


def plan(known: PartitionNumbers, *items: PushRun) -> Steps:
    return PushPlan(None, "server", known).steps([[one] for one in items])


def names(asked: list[Statement]) -> list[str]:
    known = ("push_lock_queues", "push_find_partitions", "push_find_duplicates", "push_make_partitions")
    return [name for statement in asked for name in known if query(name) == statement.text]


def decided(steps: Steps, *answers: list[tuple[object, ...]]) -> Decided:
    with pytest.raises(StopIteration) as end:
        steps.send(list(answers))
    return end.value.value  # type: ignore[no-any-return]  # a plan returns what it decided


def partition(number: int | None, name: str = "p") -> tuple[object, ...]:
    return ("orders", name, number, 2, TIME_US)


def test_known_partition_is_asked_for_duplicates_in_the_first_step() -> None:
    steps = plan({("orders", "p"): 3}, item("a", "p"))
    assert names(next(steps)) == ["push_lock_queues", "push_find_partitions", "push_find_duplicates"]
    outcomes = decided(steps, [ORDERS], [partition(3)], []).outcomes
    assert [(one.status, one.seq, one.partition_id) for [one] in outcomes] == [("queued", 5, "7-3")]  # type: ignore[misc]


def test_unknown_partition_is_asked_for_duplicates_when_its_number_is_found() -> None:
    known: PartitionNumbers = {}
    steps = plan(known, item("a", "p"))
    assert names(next(steps)) == ["push_lock_queues", "push_find_partitions"]
    asked = steps.send([[ORDERS], [partition(3)]])
    assert names(asked) == ["push_find_duplicates"]
    assert asked[0].values["partition_ids"] == [3]
    assert known == {("orders", "p"): 3}
    outcome = decided(steps, [(1, 2)])
    assert [(one.status, one.seq) for [one] in outcome.outcomes] == [("duplicate", 2)]  # type: ignore[misc]
    assert outcome.writes == []


def test_answer_for_another_partition_than_was_found_does_not_count() -> None:
    known = {("orders", "p"): 3}
    steps = plan(known, item("a", "p"))
    next(steps)
    asked = steps.send([[ORDERS], [partition(8)], [(1, 2)]])  # a duplicate, in the partition that was there before
    assert names(asked) == ["push_find_duplicates"]
    assert asked[0].values["partition_ids"] == [8]
    assert [one.status for [one] in decided(steps, []).outcomes] == ["queued"]  # type: ignore[misc]
    assert known == {("orders", "p"): 8}


def test_partition_that_is_gone_is_forgotten_and_made_again_without_duplicates() -> None:
    known = {("orders", "p"): 3}
    steps = plan(known, item("a", "p"))
    next(steps)
    assert names(steps.send([[ORDERS], [partition(None)], [(1, 2)]])) == ["push_make_partitions"]
    assert known == {}
    outcome = decided(steps, [(7, "p", 9)])
    assert [(one.status, one.partition_id) for [one] in outcome.outcomes] == [("queued", "7-9")]  # type: ignore[misc]
    assert known == {}  # not before it is committed


def test_minted_ids_are_never_asked_after() -> None:
    steps = plan({("orders", "p"): 3}, run_of_one("orders", "p", b"a", "a", is_minted=True))
    assert names(next(steps)) == ["push_lock_queues", "push_find_partitions"]
    assert len(decided(steps, [ORDERS], [partition(3)]).writes) == 1


def test_same_id_twice_in_a_group_is_stored_once() -> None:
    steps = plan({("orders", "p"): 3}, item("a", "p"), item("a", "p"))
    next(steps)
    outcomes = decided(steps, [ORDERS], [partition(3)], []).outcomes
    assert [(one.status, one.seq) for [one] in outcomes] == [("queued", 5), ("duplicate", 5)]  # type: ignore[misc]


def test_missing_queue_ends_the_plan_with_its_name() -> None:
    steps = plan({}, item("a", "p"), item("b", "p", queue="others"))
    next(steps)
    with pytest.raises(MissingQueues) as missing:
        steps.send([[ORDERS], [partition(3)]])
    assert list(missing.value.queues) == ["others"]


def test_numbers_of_partitions_do_not_pile_up() -> None:
    known = {("orders", str(n)): n for n in range(PARTITIONS_KNOWN_MAX + 1)}
    steps = plan(known, item("a", "p"))
    next(steps)
    steps.send([[ORDERS], [partition(3)]])
    assert known == {("orders", "p"): 3}
