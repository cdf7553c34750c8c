"""What a failure of the database means: the same again, or an error, and whether anything may have been done."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from forebay.broker.stores.postgres.attempts import ATTEMPTS_MAX, Attempts, CommitUnknown
from forebay.errors import StoreUnavailable


@pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), OSError("refused"), TimeoutError()])
def test_work_is_done_again_once_when_the_database_goes_away(error: Exception) -> None:
    attempts = Attempts()
    assert attempts.pause_after(error) == 0
    with pytest.raises(StoreUnavailable, match="does not answer") as raised:
        attempts.pause_after(error)
    assert not raised.value.is_outcome_unknown


def test_rollback_because_of_others_is_tried_again_a_few_times() -> None:
    attempts = Attempts()
    pauses = [attempts.pause_after(errors.DeadlockDetected()) for _ in range(1, ATTEMPTS_MAX)]
    assert all(0 <= pause < 1 for pause in pauses)
    with pytest.raises(StoreUnavailable, match=f"rolled back {ATTEMPTS_MAX} times") as raised:
        attempts.pause_after(errors.SerializationFailure())
    assert not raised.value.is_outcome_unknown


def test_commit_without_an_answer_is_never_repeated() -> None:
    with pytest.raises(StoreUnavailable, match="outcome is unknown") as raised:
        Attempts().pause_after(CommitUnknown())
    assert raised.value.is_outcome_unknown
