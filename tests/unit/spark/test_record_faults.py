"""Whose fault a failure is, by what Spark says about it."""

from __future__ import annotations

import pytest

from forebay.spark.record_faults import Blame, blame


def python(*ends: str) -> str:
    """A task's failure as Spark tells it, with one traceback per end, each the cause of the next."""
    stacks = [f'Traceback (most recent call last):\n  File "a.py", line 1, in act\n    act()\n{end}\n' for end in ends]
    told = "\nDuring handling of the above exception, another exception occurred:\n\n".join(stacks)
    return f"Job aborted: Task 0 failed: PythonException: {told}\tat org.apache.spark.X(X.scala:1)"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==", Blame.VALUE),
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", Blame.VALUE),
        ("[USER_RAISED_EXCEPTION] no. SQLSTATE: P0001", Blame.VALUE),
        ("[UNRESOLVED_COLUMN] no such column. SQLSTATE: 42703", Blame.WORLD),
        ("ExecutorLostFailure (executor 1 exited)", Blame.WORLD),
        (python("ValueError: not a number"), Blame.RECORD),
        (python("KeyError: 'user'", "shop.actions.BadOrder: no user\nin two lines"), Blame.RECORD),
        (python("AssertionError"), Blame.RECORD),
        (python("FileNotFoundError: [Errno 2] No such file"), Blame.RECORD),
        (python("ConnectionRefusedError: [Errno 111] Connection refused"), Blame.WORLD),
        (python("requests.exceptions.ReadTimeout: 5 s"), Blame.WORLD),
        (python("ConnectionResetError: x", "shop.actions.BadOrder: no price"), Blame.WORLD),
        (python("requests.exceptions.HTTPError: 404 Client Error: Not Found for url"), Blame.RECORD),
        (python("requests.exceptions.HTTPError: 503 Server Error: Busy"), Blame.WORLD),
        (python("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests"), Blame.WORLD),
        (python("forebay.errors.Transient: the price list is away"), Blame.WORLD),
        (python("forebay.spark.queues.MessagesGone: messages 1-10 are gone"), Blame.WORLD),
        (
            python(
                "forebay.spark.server_calls.ServerRefused: "
                "http://h:1/api/v1/arrow/queues/q refused (413): payload: too large"
            ),
            Blame.SINK,
        ),
        (python("forebay.spark.server_calls.ServerRefused: the server refused (401): no key"), Blame.WORLD),
        (python("MemoryError"), Blame.WORLD),
    ],
)
def test_blame_is_laid_by_what_was_raised(failure: str, expected: Blame) -> None:
    assert blame(failure) is expected
