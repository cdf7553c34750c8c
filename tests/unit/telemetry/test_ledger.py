"""Accounts add up, or say in words why they do not."""

from __future__ import annotations

from forebay.telemetry.ledger import (
    SEND_QUEUE,
    Account,
    flow_account,
    group_account,
    queue_account,
    totals_of,
)


def test_a_queue_and_its_groups_have_accepted_the_same() -> None:
    queue = queue_account("orders", stored_ever=10, buffered=3, kept=6, lost=1)
    assert queue.parts == {"buffered": 3, "stored": 6, "removed": 3, "lost": 1}
    group = group_account("orders", "g", stored_ever=10, buffered=3, waiting=4, leased=2, dead=1)
    assert group.parts == {"buffered": 3, "finished": 3, "waiting": 4, "leased": 2, "dead": 1}
    assert queue.accepted == group.accepted == 13
    assert queue.faults() == group.faults() == []


def test_more_than_was_accepted_is_a_fault() -> None:
    assert queue_account("q", stored_ever=5, buffered=0, kept=6, lost=0).faults() == [
        "queue 'q': -1 messages are removed"
    ]
    assert group_account("q", "g", stored_ever=5, buffered=0, waiting=4, leased=0, dead=2).faults() == [
        "group 'q' of 'g': -1 messages are finished"
    ]


def test_what_is_nowhere_is_a_fault() -> None:
    account = Account(SEND_QUEUE, "lake", "", 5, {"waiting": 1, "confirmed": 3})
    assert account.difference == 1
    assert account.faults() == ["send queue 'lake': 5 batches were accepted, and 4 are accounted for"]


def test_totals_are_sums_by_stage_in_the_order_of_the_journey() -> None:
    accounts = [
        Account(SEND_QUEUE, "lake", "", 5, {"waiting": 5}),
        flow_account("clicks", {"queued": 1, "error": 2}),
        queue_account("a", stored_ever=2, buffered=0, kept=2, lost=0),
        queue_account("b", stored_ever=3, buffered=1, kept=1, lost=0),
    ]
    found = totals_of(accounts)
    assert [(one.stage, one.accounts, one.accepted) for one in found] == [
        ("queue", 2, 6),
        ("flow", 1, 3),
        ("send queue", 1, 5),
    ]
    assert found[0].parts == {"buffered": 1, "stored": 3, "removed": 2, "lost": 0}
    assert totals_of([]) == []
