"""Where a source is cut: whatever arrives when, every message is in one parcel, and none waits longer than it may."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.cut_plan import CutRule, Uncut, plan_cut
from forebay.dispatch.dids import new_dids

RULES = st.builds(CutRule, st.integers(1, 20), st.integers(0, 50), st.integers(1, 5))


@given(RULES, st.lists(st.tuples(st.integers(0, 60), st.integers(-30, 60)), max_size=30))
def test_every_message_is_cut_once_in_order(rule: CutRule, turns: list[tuple[int, int]]) -> None:
    end, now_us, next_seq, waits_us = 1, 1_000, 1, None
    covered: list[int] = []
    for arrived, passed in [*turns, (0, 100), (0, 100)]:
        end, now_us = end + arrived, now_us + passed
        plan = plan_cut(Uncut(next_seq, end, waits_us), rule, now_us)
        assert len(plan.ranges) <= rule.parcels_max
        assert all(last - first < rule.parcel_messages for first, last in plan.ranges)
        covered += [seq for first, last in plan.ranges for seq in range(first, last + 1)]
        next_seq, waits_us = plan.next_seq, plan.waits_us
        assert (waits_us is None) == (next_seq == end)
        assert plan.is_more == (end - next_seq >= rule.parcel_messages)
    assert covered == list(range(1, next_seq))


@given(RULES, st.integers(1, 19))
def test_messages_wait_no_longer_than_the_rule_says(rule: CutRule, waiting: int) -> None:
    waiting = min(waiting, rule.parcel_messages - 1)
    if waiting == 0:
        return
    seen = plan_cut(Uncut(1, 1 + waiting, None), rule, 1_000)
    late = plan_cut(Uncut(seen.next_seq, 1 + waiting, seen.waits_us), rule, 1_000 + rule.wait_us)
    assert late.next_seq == 1 + waiting


def test_dids_are_ascending_uuids_of_version_7() -> None:
    dids = new_dids(100, 1_767_225_600_123_456)
    assert dids == sorted(dids)
    assert len(set(dids)) == 100
    assert {(UUID(did).version, UUID(did).variant) for did in dids} == {(7, "specified in RFC 4122")}
    assert int(dids[0].replace("-", "")[:12], 16) == 1_767_225_600_123
