"""What a queue's options decide about messages that no consumer has yet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.broker import queue_rules
from forebay.broker.queue_rules import Cutoffs
from forebay.clock import SECOND_US
from forebay.model.queue import Queue, QueueOptions

NOW_US = 1_000 * SECOND_US
TIMES = st.integers(0, 2 * NOW_US)
SEALED, IN_CLEAR = b"\0FBE2 and so on", b'{"id": 7}'


def test_pop_takes_the_queue_of_the_highest_priority_first_and_then_by_name() -> None:
    queues = [Queue(name, options=QueueOptions(priority=p)) for name, p in (("b", 0), ("c", 5), ("a", 0), ("d", 9))]
    assert [queue.name for queue in sorted(queues, key=queue_rules.pop_order)] == ["d", "c", "a", "b"]


@given(created_us=st.lists(TIMES, max_size=8), seconds=st.integers(0, 3000))
def test_message_that_is_too_young_holds_up_those_behind_it(created_us: list[int], seconds: int) -> None:
    options = QueueOptions(delayed_processing_seconds=seconds)
    count = queue_rules.visible_count(created_us, options, NOW_US)
    # What was made in the future was made by a clock that has been set back since: it does not wait.
    early = [us <= NOW_US < queue_rules.visible_us(us, options) for us in created_us]
    assert not any(early[:count])
    assert count == len(created_us) or early[count]


@given(newest_us=TIMES, seconds=st.integers(0, 3000))
def test_window_ends_so_long_after_the_newest_message(newest_us: int, seconds: int) -> None:
    end_us = queue_rules.window_end_us(newest_us, QueueOptions(window_buffer_seconds=seconds), NOW_US)
    is_open = newest_us <= NOW_US < newest_us + seconds * SECOND_US
    assert end_us == (newest_us + seconds * SECOND_US if is_open else 0)


@pytest.mark.parametrize(
    ("max_size", "waiting", "new", "is_refused"),
    [(0, 10**9, 5, False), (10, 9, 1, False), (10, 9, 2, True), (10, 12, 0, False), (10, 12, 1, True)],
)
def test_push_is_refused_where_the_queue_has_no_room_for_its_new_messages(
    max_size: int, waiting: int, new: int, is_refused: bool
) -> None:
    refused = queue_rules.refused_for_room("orders", max_size, waiting, new)
    assert (refused is not None) == is_refused
    if refused is not None:
        assert f"{waiting} of {max_size} messages wait" in refused.message


def test_encrypted_queue_takes_sealed_payloads_alone() -> None:
    assert queue_rules.refused_in_clear("orders", [SEALED, SEALED]) is None
    refused = queue_rules.refused_in_clear("orders", [SEALED, IN_CLEAR])
    assert refused is not None
    assert refused.queue == "orders"


def test_messages_are_removed_by_the_shortest_time_that_the_options_name() -> None:
    options = QueueOptions(retention_seconds=100, completed_retention_seconds=10)
    assert queue_rules.cutoffs(options, NOW_US) == Cutoffs(NOW_US - 100 * SECOND_US, NOW_US - 10 * SECOND_US)
    shorter = replace(options, ttl_seconds=7)
    assert queue_rules.cutoffs(shorter, NOW_US).any_us == NOW_US - 7 * SECOND_US
    off = replace(options, retention_enabled=False)
    assert queue_rules.cutoffs(off, NOW_US) == Cutoffs(None, None)
    assert queue_rules.keeps_everything(off)
    assert not queue_rules.keeps_everything(replace(off, ttl_seconds=7))
