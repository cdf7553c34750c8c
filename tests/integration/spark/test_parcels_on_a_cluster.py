"""Flows on parcels on a standalone cluster, with two workers, two servers, PostgreSQL and Valkey; parts of it are lost.

Whatever is lost: every message is in one parcel, every parcel ends, and each result is in its queue once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.fix_spark import Queues
from fixtures.spark_processes import bare_python, free_port, master, worker
from fixtures.waiting import wait_until
from fixtures.worker_process import WorkerProcess
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer, ValkeyServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS_MAX = 200
MESSAGES = 1_200
FLOW = """\
flows:
  - name: squares
    source: {queue: events, payloadAs: json, schema: "n INT, word STRING", parcel_messages: 100}
    retry: {max_attempts: 20, delay: 500ms, multiplier: 1}
    actions:
      - {name: known, sql: "SELECT did, n, word FROM input WHERE n <> 13"}
      - {name: judge, class: cluster_actions.Judge, isolate: true}
    sink: {queue: squares}
"""
ACTIONS = """\
from forebay.flows import Error, Record, RecordAction, RecordContext, Result


def squared(n):
    return n * n


class Judge(RecordAction):
    schema = "word STRING, square BIGINT"

    def transform(self, record, context):
        if record["n"] % 400 == 7:
            return Error(f"{record['n']} is refused")
        return Result({"word": record["word"], "square": squared(record["n"])})
"""


def test_a_cluster_that_loses_a_worker_an_executor_a_server_and_its_warm_tier_gives_each_result_once(
    postgres_server: PostgresServer, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "forebay.yaml").write_text(FLOW)
    (tmp_path / "cluster_actions.py").write_text(ACTIONS)
    (tmp_path / "spark.properties").write_text("spark.cores.max 1\nspark.executor.memory 512m\nspark.log.level ERROR\n")
    words = ("--warm", valkey_server.url, "--dispatch-lease-time", "5s", "--dispatch-heartbeat-time", "1s")
    with (
        master(tmp_path, port) as head,
        worker(tmp_path, "a", port) as lost,
        worker(tmp_path, "b", port),
        RunningServer(tmp_path / "first", store=postgres_server.url, arguments=words) as first,
        RunningServer(tmp_path / "second", store=postgres_server.url, arguments=words) as second,
    ):
        queues = Queues(second)
        put(queues, 0, MESSAGES // 2)
        head.wait_until_ready()
        environ = {
            "PYSPARK_PYTHON": str(bare_python(tmp_path / "bare", "msgspec")),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        given = ["-c", str(tmp_path / "forebay.yaml"), "--url", f"{first.url},{second.url}", "--worker-lanes", "2"]
        given += [
            "--spark-master",
            f"spark://127.0.0.1:{port}",
            "--spark-properties",
            str(tmp_path / "spark.properties"),
        ]
        given += ["--worker-lease-parcels", "3"]
        with (
            WorkerProcess(tmp_path / "one", given, environ) as doomed,
            WorkerProcess(tmp_path / "two", given, environ) as lasting,
        ):
            wait_until(lambda: is_well(doomed) and is_well(lasting) and queues.size("squares") > 0, SECONDS_MAX)
            doomed.kill()
            lost.kill()
            first.kill()
            valkey_server.stop("kill")
            put(queues, MESSAGES // 2, MESSAGES)
            wait_until(lambda: is_well(lasting) and queues.size("squares") > MESSAGES // 2, SECONDS_MAX)
            valkey_server.start()
            postgres_server.restart()
            wait_until(lambda: is_well(lasting) and is_over(queues), SECONDS_MAX)
            assert lasting.stop() == 0
        expected = [n for n in range(MESSAGES) if n != 13 and n % 400 != 7]
        found = [json.loads(payload) for payload in queues.payloads("squares")]
        assert sorted(found, key=lambda row: row["square"]) == [{"word": f"w{n}", "square": n * n} for n in expected]
        letters = queues.rows("squares.errors")
        assert [json.loads(letter["headers"])["holds"] for letter in letters] == ["input"] * 3
        assert {letter["payload"] for letter in letters} < set(queues.payloads(".flow.squares.judge"))


def put(queues: Queues, start: int, end: int) -> None:
    queues.put("events", {"payload": [b'{"n": %d, "word": "w%d"}' % (n, n) for n in range(start, end)]})


def is_well(process: WorkerProcess) -> bool:
    assert process.is_running, process.log()[-5000:]
    return True


def is_over(queues: Queues) -> bool:
    found: list[dict[str, Any]] = queues.ask("GET", "/api/v1/parcels?flow=squares&limit=1000")["parcels"]
    return sum(one["messages"] for one in found) == MESSAGES and all(
        one["state"] in ("COMPLETE", "FILTERED") for one in found
    )
