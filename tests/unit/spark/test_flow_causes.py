"""What is told about a query that ended: the error, and not the stacks of two languages around it."""

from __future__ import annotations

import pytest

from forebay.errors import Transient
from forebay.spark.flow_causes import cause_of

PLANNING = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when latestOffset: Traceback (most recent call last):
  File "wire.py", line 94, in request
    with self.open(method, path, body, content_type) as answer:
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "runner.py", line 1, in latest_offset_func
    offset = reader.latestOffset()
             ^^^^^^^^^^^^^^^^^^^^^
forebay.spark.server_calls.ServersAway: GET /range failed for 1 s, last: [Errno 111] Connection refused
  The option retryTimeout says how long to wait
. SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 1]"""
TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
forebay.spark.queues.MessagesGone: messages 1-10 of queue 'q' are gone

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)"""


CONNECT = """[PYTHON_EXCEPTION] Traceback (most recent call last):
  File "shop.py", line 18, in _times
    raise ValueError(f"{one} is below zero")
ValueError: -1 is below zero
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Exception(CONNECT), "ValueError: -1 is below zero"),
        (
            Exception(PLANNING),
            (
                "forebay.spark.server_calls.ServersAway: GET /range failed for 1 s, "
                "last: [Errno 111] Connection refused\n"
                "  The option retryTimeout says how long to wait"
            ),
        ),
        (Exception(TASK), "forebay.spark.queues.MessagesGone: messages 1-10 of queue 'q' are gone"),
        (Exception("[DIVIDE_BY_ZERO] Division by zero.\n\nJVM stacktrace:\nx"), "[DIVIDE_BY_ZERO] Division by zero."),
        (Transient("the server is away"), "the server is away"),
        (KeyError(), "KeyError"),
    ],
)
def test_cause_is_the_error_and_not_the_stack(fault: Exception, told: str) -> None:
    assert cause_of(fault) == told
