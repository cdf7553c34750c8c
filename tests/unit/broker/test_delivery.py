"""Who gets which message: the rules one by one. `tests/model/test_delivery_model.py` has them all together."""

from __future__ import annotations

import msgspec
import pytest

from forebay.broker.delivery import (
    COMPLETED,
    DEAD,
    FAILED,
    LEASE_INVALID,
    NOT_IN_LEASE,
    RETRY,
    Candidates,
    Claim,
    DeliveryState,
    Lease,
    Pending,
    Verdict,
    acknowledge,
    claim,
    decode_state,
    due_us,
    extended,
    is_due,
    released,
    without_gone,
)
from forebay.model.queue import OptionsRefused, QueueOptions, options_from_wire, options_to_wire

OPTIONS = QueueOptions(lease_seconds=10, retry_limit=1, retry_delay_ms=2000)
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def fresh(*seqs: int, created_us: int = NOW) -> Candidates:
    return Candidates(seqs, [f"t{seq}" for seq in seqs], [created_us] * len(seqs))


def taken(state: DeliveryState, *seqs: int, now_us: int = NOW, options: QueueOptions = OPTIONS) -> Claim:
    found = claim(state, fresh(*seqs), options, now_us=now_us, batch=10, lease_id="lease", auto_ack=False, group="g")
    assert found is not None
    return found


def answers(status: str, *seqs: int) -> list[Verdict]:
    return [Verdict(f"t{seq}", status, "broken" if status in (FAILED, DEAD) else "") for seq in seqs]


def test_a_partition_is_leased_to_one_consumer_at_a_time() -> None:
    first = taken(DeliveryState(0), 1, 2)
    assert first.delivered == ((1, 1), (2, 1))
    again = claim(first.state, fresh(3), OPTIONS, now_us=NOW, batch=1, lease_id="other", auto_ack=False, group="g")
    assert again is None


def test_the_cursor_moves_over_finished_messages_only() -> None:
    state = taken(DeliveryState(0), 1, 2, 3).state
    _, _, state = acknowledge(state, "lease", answers(COMPLETED, 3, 2), OPTIONS, now_us=NOW)
    assert state.cursor_seq == 0
    judged, _, state = acknowledge(state, "lease", answers(COMPLETED, 1), OPTIONS, now_us=NOW)
    assert (state.cursor_seq, state.pending, state.lease_id) == (3, (), "")
    assert judged[0].is_released


def test_what_is_finished_in_a_broken_batch_is_not_delivered_again() -> None:
    state = taken(DeliveryState(0), 1, 2, 3).state
    _, _, state = acknowledge(state, "lease", answers(COMPLETED, 2), OPTIONS, now_us=NOW)
    later = NOW + 11 * SECOND
    assert taken(state, 4, now_us=later).delivered == ((1, 2), (3, 2), (4, 1))


def test_attempts_count_when_leased_so_that_crashes_count() -> None:
    state = taken(DeliveryState(0), 1).state
    second = taken(state, 2, now_us=NOW + 11 * SECOND)
    assert second.delivered == ((1, 2), (2, 1))
    third = taken(second.state, 3, now_us=NOW + 22 * SECOND)
    assert third.delivered == ((2, 2), (3, 1))
    assert [(letter.seq, letter.attempts, letter.reason) for letter in third.dead] == [
        (1, 2, "not answered in 2 attempts")
    ]


@pytest.mark.parametrize("status", [FAILED, RETRY])
def test_a_failed_message_comes_back_after_its_delay_and_holds_up_what_is_behind_it(status: str) -> None:
    state = taken(DeliveryState(0), 1, 2).state
    _, dead, state = acknowledge(state, "lease", answers(status, 1), OPTIONS, now_us=NOW)
    _, _, state = acknowledge(state, "lease", answers(COMPLETED, 2), OPTIONS, now_us=NOW)
    assert not dead
    assert (
        claim(state, fresh(3), OPTIONS, now_us=NOW + SECOND, batch=9, lease_id="x", auto_ack=False, group="g") is None
    )
    assert taken(state, 3, now_us=NOW + 2 * SECOND).delivered == ((1, 2), (3, 1))


def test_the_last_failure_makes_a_dead_letter_with_its_reason_and_the_partition_goes_on() -> None:
    state = taken(DeliveryState(0), 1, 2).state
    _, _, state = acknowledge(state, "lease", answers(FAILED, 1, 2), OPTIONS, now_us=NOW)
    state = taken(state, now_us=NOW + 3 * SECOND).state
    judged, dead, state = acknowledge(state, "lease", answers(FAILED, 1), OPTIONS, now_us=NOW + 3 * SECOND)
    assert judged[0].is_dead
    assert [(letter.seq, letter.reason, letter.is_dropped) for letter in dead] == [(1, "broken", False)]
    assert state.cursor_seq == 1


def test_without_dead_letters_a_message_that_used_up_its_attempts_is_dropped() -> None:
    options = QueueOptions(retry_limit=0, dlq_after_max_retries=False)
    state = taken(DeliveryState(0), 1, options=options).state
    _, dead, _ = acknowledge(state, "lease", answers(FAILED, 1), options, now_us=NOW)
    assert dead[0].is_dropped
    _, dead, _ = acknowledge(state, "lease", answers(DEAD, 1), options, now_us=NOW)
    assert not dead[0].is_dropped, "who says dlq means it"


@pytest.mark.parametrize("lease_id", ["other", frozenset(("other",)), frozenset()])
def test_a_foreign_lease_changes_nothing(lease_id: Lease) -> None:
    state = taken(DeliveryState(0), 1).state
    judged, dead, after = acknowledge(state, lease_id, answers(COMPLETED, 1), OPTIONS, now_us=NOW)
    assert (judged[0].error, dead, after) == (LEASE_INVALID, [], state)


def test_a_lease_that_is_over_changes_nothing() -> None:
    state = taken(DeliveryState(0), 1).state
    judged, _, after = acknowledge(state, "lease", answers(COMPLETED, 1), OPTIONS, now_us=NOW + 10 * SECOND)
    assert (judged[0].is_accepted, after) == (False, state)
    longer = extended(state, now_us=NOW, seconds=60)
    judged, _, _ = acknowledge(longer, "lease", answers(COMPLETED, 1), OPTIONS, now_us=NOW + 59 * SECOND)
    assert judged[0].is_accepted


def test_a_message_is_answered_once() -> None:
    state = taken(DeliveryState(0), 1, 2).state
    judged, _, state = acknowledge(state, "lease", answers(COMPLETED, 1, 1, 9), OPTIONS, now_us=NOW)
    assert [found.error for found in judged] == ["", NOT_IN_LEASE, NOT_IN_LEASE]


def test_messages_of_one_id_are_answered_one_after_the_other() -> None:
    state = DeliveryState(0, tuple(Pending(seq, name, 1, is_leased=True) for seq, name in enumerate("xxy", 1)), "lease")
    state = extended(state, now_us=NOW, seconds=60)
    one = Verdict("x", COMPLETED)
    judged, _, after = acknowledge(state, "lease", [one], OPTIONS, now_us=NOW)
    assert [(found.is_accepted, found.is_released) for found in judged] == [(True, False)]
    assert after.cursor_seq == 1
    judged, _, after = acknowledge(after, "lease", [one, Verdict("y", COMPLETED), one], OPTIONS, now_us=NOW)
    assert [(found.is_accepted, found.is_released) for found in judged] == [(True, True), (True, True), (False, True)]
    assert (after.cursor_seq, after.lease_id) == (3, "")


def test_a_clock_that_is_set_back_does_not_keep_a_lease_for_ever() -> None:
    state = taken(DeliveryState(0), 1).state
    assert taken(state, now_us=NOW - 3600 * SECOND).delivered == ((1, 2),)


def test_a_clock_that_is_set_back_does_not_keep_a_retry_for_long() -> None:
    state = taken(DeliveryState(0), 1).state
    _, _, state = acknowledge(state, "lease", answers(FAILED, 1), OPTIONS, now_us=NOW)
    assert taken(state, now_us=NOW - 3600 * SECOND).delivered == ((1, 2),)
    assert is_due(NOW, 5, now_us=NOW - 3600 * SECOND)
    assert not is_due(NOW, 5, now_us=NOW + 4 * SECOND)
    assert is_due(NOW, 5, now_us=NOW + 5 * SECOND)


def test_auto_ack_finishes_at_delivery() -> None:
    found = claim(
        DeliveryState(0), fresh(1, 2, 3), OPTIONS, now_us=NOW, batch=2, lease_id="x", auto_ack=True, group="g"
    )
    assert found is not None
    assert found.state == DeliveryState(2, finished=2)


def test_what_waited_too_long_becomes_a_dead_letter() -> None:
    options = QueueOptions(max_wait_seconds=5)
    old = Candidates((1, 2), ("t1", "t2"), (NOW - 6 * SECOND, NOW))
    found = claim(DeliveryState(0), old, options, now_us=NOW, batch=9, lease_id="x", auto_ack=False, group="g")
    assert found is not None
    assert found.delivered == ((2, 1),)
    assert [letter.reason for letter in found.dead] == ["waited longer than 5 s"]


def test_what_is_removed_meanwhile_is_not_waited_for() -> None:
    state = taken(DeliveryState(0), 1, 2, 3).state
    state = without_gone(state, lambda seq: seq > 2)
    assert state.cursor_seq == 2
    assert [pending.seq for pending in state.pending] == [3]


def test_a_failure_yields_the_lease_from_the_time_of_its_retry_on() -> None:
    state = taken(DeliveryState(0), 1, 2, 3).state
    _, _, state = acknowledge(state, "lease", answers(FAILED, 1), OPTIONS, now_us=NOW)
    assert (state.yielded_us, due_us(state, OPTIONS, NOW)) == (NOW + 2 * SECOND, NOW + 2 * SECOND)
    assert (
        claim(state, fresh(4), OPTIONS, now_us=NOW + SECOND, batch=9, lease_id="x", auto_ack=False, group="g") is None
    )
    assert taken(state, 4, now_us=NOW + 2 * SECOND).delivered == ((1, 2), (2, 1), (3, 1), (4, 1))


def test_a_yielded_lease_ends_with_its_own_time_for_its_holder() -> None:
    state = taken(DeliveryState(0), 1, 2).state
    _, _, state = acknowledge(state, "lease", answers(FAILED, 1), OPTIONS, now_us=NOW)
    judged, _, _ = acknowledge(state, "lease", answers(COMPLETED, 2), OPTIONS, now_us=NOW + 9 * SECOND)
    assert judged[0].is_accepted
    judged, _, _ = acknowledge(state, "lease", answers(COMPLETED, 2), OPTIONS, now_us=NOW + 10 * SECOND)
    assert judged[0].error == LEASE_INVALID


def test_an_extended_lease_is_not_yielded_any_more() -> None:
    state = taken(DeliveryState(0), 1, 2).state
    _, _, state = acknowledge(state, "lease", answers(FAILED, 1), OPTIONS, now_us=NOW)
    state = extended(state, now_us=NOW, seconds=60)
    assert (state.yielded_us, due_us(state, OPTIONS, NOW)) == (0, NOW + 60 * SECOND)
    assert (
        claim(state, fresh(), OPTIONS, now_us=NOW + 59 * SECOND, batch=9, lease_id="x", auto_ack=False, group="g")
        is None
    )
    assert taken(state, now_us=NOW + 60 * SECOND).delivered == ((1, 2), (2, 2))


def test_a_released_claim_leaves_the_state_as_it_was() -> None:
    before = DeliveryState(7, finished=7)
    assert released(taken(before, 8, 9).state) == before
    _, _, failed = acknowledge(taken(before, 8, 9).state, "lease", answers(FAILED, 8, 9), OPTIONS, now_us=NOW)
    assert released(taken(failed, 10, now_us=NOW + 2 * SECOND).state) == failed


def test_a_state_that_was_stored_before_leases_could_be_yielded_is_read() -> None:
    old = msgspec.msgpack.encode([3, [[4, "t4", 1, True, False, 0, ""]], "lease", 1, 2, 3])
    assert decode_state(old) == DeliveryState(3, (Pending(4, "t4", 1, is_leased=True),), "lease", 1, 2, 3)


def test_a_lease_on_nothing_that_is_left_is_over() -> None:
    state = without_gone(taken(DeliveryState(0), 1, 2).state, lambda seq: False)
    assert state == DeliveryState(2, finished=2)


def test_options_are_read_by_their_names_on_the_wire_and_all_faults_are_told() -> None:
    options = options_from_wire({"leaseTime": 60, "retryLimit": 0, "retryDelay": 10.0, "encryptionEnabled": True})
    assert options == QueueOptions(lease_seconds=60, retry_limit=0, retry_delay_ms=10, encryption_enabled=True)
    assert options_from_wire(options_to_wire(options)) == options
    with pytest.raises(OptionsRefused) as refused:
        options_from_wire({"leaseTime": 0, "retryLimit": -1, "timeToLive": 5, "dlqAfterMaxRetries": 1, "maxSize": "9"})
    assert len(refused.value.faults) == 5
