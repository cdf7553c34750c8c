"""What the plan decides before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.bench.broker.plan import MESSAGE_BYTES, Plan, text
from forebay.bench.harness import at_least, at_most, for_information
from forebay.errors import Permanent


def test_message_has_the_promised_size_as_json() -> None:
    assert len(json.dumps(text())) == MESSAGE_BYTES


def test_plan_refuses_a_disk_without_room_and_tells_the_numbers(tmp_path: Path) -> None:
    Plan.quick().check_room(tmp_path)
    with pytest.raises(Permanent, match=r"a backlog of 1,000,000,000,000,000 messages .* takes [0-9.]+ GiB"):
        Plan(backlog=10**15).check_room(tmp_path)


def test_quick_plan_keeps_what_was_left_out() -> None:
    assert Plan.quick(without=frozenset({"nats"})).without == {"nats"}


def test_figure_for_information_holds_whatever_it_says() -> None:
    figure = for_information("a", "ms", lambda: 1.0, "b", lambda: 1000.0, rounds=3)
    assert (figure.goal, figure.holds, figure.ratio) == (0, True, 0.001)


def test_goals_are_met_at_the_very_ratio() -> None:
    assert at_least(2, "a", "/s", lambda: 2.0, "b", lambda: 1.0, rounds=3).holds
    assert not at_least(2, "a", "/s", lambda: 1.9, "b", lambda: 1.0, rounds=3).holds
    assert at_most(2, "a", "s", lambda: 2.0, "b", lambda: 1.0, rounds=3).holds
    assert not at_most(2, "a", "s", lambda: 2.1, "b", lambda: 1.0, rounds=3).holds
