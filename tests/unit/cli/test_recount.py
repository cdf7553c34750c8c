"""What counts as a difference between a server's figures and a recount, and what a change meanwhile excuses."""

from __future__ import annotations

from collections import Counter

from forebay.cli.recount import GroupFigures, QueueFigures, Recount, balance_of, done_of

QUIET = QueueFigures("orders", 3, 11, 8, 1, 5, {"a": 6, "b": 2}, (GroupFigures("billing", 4, 1, 1),))


def recount(a: int = 6, b: int = 2) -> Recount:
    return Recount(a + b, Counter({"a": a, "b": b}), 10)


def test_equal_counts_balance() -> None:
    found = balance_of(QUIET, recount(), QUIET)
    assert (found.is_exact, found.differences) == (True, [])
    assert (QUIET.accepted, QUIET.removed) == (15, 2)
    assert QUIET.accepted == QUIET.buffered + found.recount.stored + QUIET.removed
    (group,) = QUIET.groups
    assert QUIET.accepted == QUIET.buffered + done_of(group, QUIET) + group.lag + group.dead


def test_missing_and_surplus_messages_are_differences_with_their_partition() -> None:
    assert balance_of(QUIET, recount(a=5), QUIET).differences == [
        "7 messages are stored; the server counts 8",
        "partition 'a': 5 messages are stored; the server counts 6",
    ]
    assert len(balance_of(QUIET, recount(b=3), QUIET).differences) == 2
    swapped = balance_of(QUIET, recount(a=5, b=3), QUIET).differences
    assert [text.split(":")[0] for text in swapped] == ["partition 'a'", "partition 'b'"]


def test_removal_meanwhile_excuses_as_many_missing_messages_and_no_more() -> None:
    retained = QUIET._replace(kept=6)
    assert balance_of(QUIET, recount(a=4), retained).differences == []
    assert balance_of(QUIET, recount(a=3), retained).differences != []
    assert balance_of(QUIET, recount(a=7), retained).differences != []


def test_pushes_meanwhile_excuse_nothing_below_the_first_look() -> None:
    grown = QUIET._replace(next_seq=21, kept=18)
    assert balance_of(QUIET, recount(), grown).differences == []
    assert balance_of(QUIET, recount(), grown).is_exact is False
    assert balance_of(QUIET, recount(a=5), grown).differences == ["7 messages are stored; the server counts 8"]


def test_order_ids_and_seqs_that_were_never_given_out_are_differences() -> None:
    counted = Recount()
    counted.add([3, 4, 4, 5, 1, 11, 12, 13], ["a"] * 6 + ["b"] * 2)
    counted.repeated_ids = 3
    assert balance_of(QUIET, counted, QUIET).differences == [
        "2 messages do not have a higher seq than the one before",
        "seq 13 is stored; the next to be given out is 11",
        "3 messages have a transactionId that their partition holds already",
    ]


def test_group_cannot_wait_for_more_than_there_is() -> None:
    waiting = QUIET._replace(groups=(GroupFigures("billing", 9, 10, 3),))
    assert balance_of(waiting, recount(), waiting).differences == [
        "group 'billing': 9 messages wait; 8 are stored",
        "group 'billing': 10 messages are leased, of 9 that wait",
        "group 'billing': 12 messages wait or are dead; 10 were stored",
    ]
