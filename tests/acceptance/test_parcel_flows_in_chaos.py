"""Everything at once, under load: workers, servers, Valkey, PostgreSQL and the destination fail in turn.

Two servers on one PostgreSQL and one Valkey, two workers with Spark, a flow with an isolated step to a queue and to an
HTTP destination. Messages are pushed all the time, some of them poison. Then it settles: every message is in one
parcel, every parcel is COMPLETE, the queue has each result once, the destination each at least once, and the ledger
balances.

`CHAOS_SECONDS` says how long it lasts (40): the target `make test-stress` gives it three minutes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fixtures.fix_spark import Queues
from fixtures.waiting import wait_until
from fixtures.worker_process import WorkerProcess
from forebay.client import Client
from forebay.errors import ForebayError
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer, ValkeyServer

pytestmark = pytest.mark.slow

CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "40"))
SETTLE_SECONDS_MAX = 240.0
PAUSE_SECONDS = 4.0
"""Between two faults."""
BATCH = 100
POISON = 37
"""One message in so many hundred cannot be worked on."""
SETTINGS = """\
destinations:
  - {{name: warehouse, type: http, url: "{sink}", format: json, queue: {{retry_interval: 200ms, max_retry_delay: 1s}}}}
flows:
  - name: orders
    source: {{queue: orders, payloadAs: json, schema: "n INT", parcel_messages: 500}}
    retry: {{max_attempts: 20, delay: 500ms, multiplier: 1}}
    actions:
      - {{name: judge, class: chaos_actions.Judge}}
      - {{name: double, sql: "SELECT did, n, 2 * n AS twice FROM input", isolate: true}}
    sinks: [{{queue: results}}, {{export: warehouse}}]
"""
ACTIONS = """\
from forebay.flows import Error, RecordAction, Result


class Judge(RecordAction):
    schema = "n INT"

    def transform(self, record, context):
        if record["n"] % 3700 == 37:
            return Error("poison")
        return Result({"n": record["n"]})
"""


class Sink:
    """A destination that can be down; it remembers what it took."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.is_down = False
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if not sink.is_down:
                    sink.taken |= {row["n"] for row in json.loads(body)}
                self.send_response(503 if sink.is_down else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._listener.server_port}"

    @contextmanager
    def served(self) -> Iterator[Sink]:
        thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown()
            thread.join()
            self._listener.server_close()


class Load:
    """Pushes messages until it is stopped, each again until a server has said that it has it."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.pushed = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.pushed

    def _run(self) -> None:
        with Client(self._urls) as client:
            while not self._stopping.wait(0.05):
                numbers = range(self.pushed, self.pushed + BATCH)
                ids = [f"order-{n}" for n in numbers]
                while True:
                    try:
                        client.push_many("orders", [{"n": n} for n in numbers], transaction_ids=ids)
                        break
                    except ForebayError:
                        time.sleep(0.2)
                self.pushed += BATCH


@pytest.mark.timeout(900)
def test_everything_settles_after_everything_has_failed(
    postgres_server: PostgresServer, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    sink = Sink()
    (tmp_path / "forebay.yaml").write_text(SETTINGS.format(sink=sink.url))
    (tmp_path / "chaos_actions.py").write_text(ACTIONS)
    settings = ("-c", str(tmp_path / "forebay.yaml"))
    words = (*settings, "--warm", valkey_server.url, "--dispatch-lease-time", "6s", "--dispatch-heartbeat-time", "1s")
    with (
        sink.served(),
        RunningServer(tmp_path / "first", store=postgres_server.url, arguments=words) as first,
        RunningServer(tmp_path / "second", store=postgres_server.url, arguments=words) as second,
    ):
        load = Load([first.url, second.url])
        given = [*settings, "--url", f"{first.url},{second.url}", "--worker-lanes", "2", "--spark-master", "local[2]"]
        with WorkerProcess(tmp_path / "one", given) as one, WorkerProcess(tmp_path / "two", given) as two:
            load.start()
            queues = Queues(second)
            wait_until(lambda: _size(queues) > 0, SETTLE_SECONDS_MAX)
            _fail_in_turn(_faults([first, second], [one, two], postgres_server, valkey_server, sink))
            pushed = load.stop()
            wait_until(lambda: _is_over(queues, pushed), SETTLE_SECONDS_MAX)
            assert one.stop() == two.stop() == 0
        poison = {n for n in range(pushed) if n % 3700 == POISON}
        good = set(range(pushed)) - poison
        rows = [json.loads(payload) for payload in queues.payloads("results")]
        assert sorted(row["n"] for row in rows) == sorted(good), "each result is in the queue once"
        assert sink.taken == good, "the destination has every result"
        assert sorted(json.loads(payload)["n"] for payload in queues.payloads("orders.errors")) == sorted(poison)
        audit = subprocess.run(
            [sys.executable, "-m", "forebay", "audit", "--url", second.url], capture_output=True, text=True, timeout=60
        )
        assert audit.returncode == 0, audit.stdout + audit.stderr


def _faults(
    servers: list[RunningServer],
    workers: list[WorkerProcess],
    postgres: PostgresServer,
    valkey: ValkeyServer,
    sink: Sink,
) -> Iterator[Callable[[], None]]:
    def again(thing: RunningServer | WorkerProcess) -> Callable[[], None]:
        def kill_and_start() -> None:
            thing.kill()
            thing.start()

        return kill_and_start

    def empty_valkey() -> None:
        valkey.stop("kill")
        valkey.start()

    def turn_sink() -> None:
        sink.is_down = not sink.is_down

    return itertools.cycle(
        [turn_sink, again(workers[0]), empty_valkey, again(servers[0]), turn_sink, postgres.restart, again(workers[1]),
         again(servers[1])]
    )  # fmt: skip


def _fail_in_turn(faults: Iterator[Callable[[], None]]) -> None:
    end = time.monotonic() + CHAOS_SECONDS
    for number, fault in enumerate(faults):
        # All of them at least once, and an even number of times for what is switched.
        if time.monotonic() > end and number and number % 8 == 0:
            return
        fault()
        time.sleep(PAUSE_SECONDS)


def _size(queues: Queues) -> int:
    return queues.size("results")


def _is_over(queues: Queues, pushed: int) -> bool:
    flow: dict[str, Any] = queues.ask("GET", "/api/v1/dispatch/flows/orders")
    under_way = ("queued", "cold", "leased", "joining", "exporting", "errors")
    return flow["nextSeq"] > pushed and not any(flow[name] for name in under_way)
