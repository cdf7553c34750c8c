# ruff: noqa: T201 - an example prints
"""Pushes go on while PostgreSQL is away: none lost, none twice, in order.

forebay serve --store postgresql://… &
python examples/event-streaming/through_an_outage.py
# in another terminal, while it runs: stop PostgreSQL, wait, start it again

It pushes a task every few milliseconds until the time is over and the store is there, and says when the answers change
from `queued` to `buffered` and back. Then it reads the queue. Ends with 1 if a task is missing, twice or out of order.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections import Counter

from forebay.client import Client

DRAIN_SECONDS_MAX = 120.0


class Producer:
    """Pushes tasks 0, 1, 2, … and counts the answers."""

    def __init__(self, client: Client, queue: str) -> None:
        self.answers: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        self._client = client
        self._address = f"{queue}/payments"
        self._last = ""

    def push(self) -> None:
        number = self.answers.total()
        began = time.monotonic()
        answer = self._client.push(self._address, {"task": number, "type": "process-payment"})
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        self.answers[answer.status] += 1
        if answer.status != self._last:
            print(f"task {number} is {answer.status}, receipt {answer.receipt}", flush=True)
            self._last = answer.status


def wait_until_drained(client: Client) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while time.monotonic() < deadline:
        told = client.get("/api/v1/status/buffers")
        if told["dbHealthy"] and not told["pending"]:
            return
        time.sleep(0.1)
    raise SystemExit("the store did not come back in time; the tasks wait in the buffer")


def main(url: str, seconds: float) -> int:
    queue = f"tasks-{uuid.uuid4().hex[:8]}"
    with Client(url) as client:
        producer = Producer(client, queue)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            producer.push()
            time.sleep(0.005)
        wait_until_drained(client)
        producer.push()
        wait_until_drained(client)
        tasks = [
            message.data["task"] for message in client.take(f"{queue}@check", batch=500, wait=False, auto_ack=True)
        ]
    answers = ", ".join(f"{count} {status}" for status, count in producer.answers.items())
    print(f"pushed {producer.answers.total()} tasks: {answers}; the slowest took {producer.slowest_seconds:.2f} s")
    expected = list(range(producer.answers.total()))
    missing, twice = len(set(expected) - set(tasks)), len(tasks) - len(set(tasks))
    print(f"found {len(tasks)}: {missing} missing, {twice} twice, in order: {tasks == sorted(tasks)}")
    return 0 if tasks == expected else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Push while the database is away.")
    parser.add_argument("--server", default=os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632"), metavar="URL")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to push")
    given = parser.parse_args()
    sys.exit(main(given.server, given.seconds))
