"""Answers that are judged together get what each of them would get by itself."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from forebay.broker.delivery import (
    COMPLETED,
    STATUSES,
    DeliveryState,
    Pending,
    Verdict,
    acknowledge,
)
from forebay.broker.delivery.answering import judged_one_by_one
from forebay.broker.messages import Acknowledgement, judged_together
from forebay.model.queue import QueueOptions

NOW = 1_700_000_000_000_000
OPTIONS = QueueOptions(lease_seconds=10, retry_limit=1, retry_delay_ms=2000)

names = st.sampled_from(["a", "b", "c", "d"])
pending = st.lists(
    st.builds(
        lambda name, attempts, is_leased, is_finished: (name, attempts, is_leased, is_finished and not is_leased),
        names,
        st.integers(1, 3),
        st.sampled_from([True, True, True, False]),
        st.booleans(),
    ),
    max_size=4,
)


def leased(found: list[tuple[str, int, bool, bool]]) -> DeliveryState:
    messages = tuple(Pending(10 + seq, *fields) for seq, fields in enumerate(found))
    return DeliveryState(9, messages, "lease", NOW, NOW + 10_000_000, finished=5)


@given(found=pending, answers=st.lists(st.tuples(names, st.sampled_from([COMPLETED, *STATUSES])), max_size=4))
def test_answers_get_what_they_get_one_by_one(
    found: list[tuple[str, int, bool, bool]], answers: list[tuple[str, str]]
) -> None:
    state, given_answers = leased(found), [Verdict(*answer) for answer in answers]
    expected = judged_one_by_one(state, given_answers, OPTIONS, NOW)
    assert acknowledge(state, "lease", given_answers, OPTIONS, now_us=NOW) == expected


@given(found=pending)
@example(found=[])
@example(found=[("a", 1, True, False), ("a", 1, True, False)])
@example(found=[("a", 1, True, False), ("b", 1, False, False)])
def test_a_batch_completed_in_order_gets_what_it_gets_one_by_one(found: list[tuple[str, int, bool, bool]]) -> None:
    state, answers = leased(found), [Verdict(name, COMPLETED) for name, *_ in found]
    expected = judged_one_by_one(state, answers, OPTIONS, NOW)
    assert acknowledge(state, "lease", answers, OPTIONS, now_us=NOW) == expected


def test_a_batch_completed_in_order_ends_its_lease_and_moves_the_cursor_behind_it() -> None:
    state = leased([("a", 1, True, False), ("b", 2, True, False)])
    judged, dead, after = acknowledge(
        state, "lease", [Verdict("a", COMPLETED), Verdict("b", COMPLETED)], OPTIONS, now_us=NOW
    )
    assert [(one.is_accepted, one.is_released) for one in judged] == [(True, True), (True, True)]
    assert (dead, after) == ([], DeliveryState(11, finished=7))


@given(keys=st.lists(st.tuples(*[st.sampled_from("ab")] * 3), max_size=6))
def test_answers_are_put_together_by_partition_group_and_lease(keys: list[tuple[str, str, str]]) -> None:
    found = judged_together([Acknowledgement(*key, Verdict("id", COMPLETED)) for key in keys])
    assert list(found) == list(dict.fromkeys(keys))
    assert all(places == [place for place, one in enumerate(keys) if one == key] for key, places in found.items())
