"""Everywhere that Spark runs: without a Java, behind Spark Connect, on a cluster that loses parts of itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.fix_spark import Queues
from fixtures.running_stores import fresh
from fixtures.spark_processes import (
    SPARK_HOME,
    bare_python,
    connect_server,
    free_port,
    master,
    short_lived,
    submitting,
    worker,
)
from fixtures.waiting import wait_until
from forebay.spark import find_java
from forebay.testing.running_server import RunningServer

PROGRAM = Path(__file__).with_name("copy_job.py")
CLUSTER_PROGRAM = Path(__file__).with_name("cluster_job.py")
SUBMITTED_PROGRAM = Path(__file__).with_name("submitted_job.py")
SECONDS_MAX = 200
REFUSED = (
    "local[7] is asked for, but this process has a session already, on local[1]. "
    "Stop it first, or name no master to use it"
)


class Job:
    """The program in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, line: str) -> None:
        wait_until(lambda: self.is_well() and line in self.lines(), SECONDS_MAX)

    def wait_for_line_with(self, text: str) -> None:
        wait_until(lambda: self.is_well() and text in self._log.read_text(), SECONDS_MAX)

    def is_well(self) -> bool:
        if self._process.poll() not in (None, 0):
            pytest.fail(f"it ended:\n{self._log.read_text()[-5000:]}")
        return True

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()


@contextmanager
def job(log: Path, *words: str, environ: dict[str, str] | None = None) -> Iterator[Job]:
    with log.open("w") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**(environ or os.environ), "SPARK_LOCAL_IP": "127.0.0.1", **short_lived(log.parent)},
        )
    try:
        yield Job(process, log)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def numbered(queues: Queues, queue: str) -> list[int]:
    return sorted(map(int, queues.payloads(queue)))


def path_without_java(folder: Path) -> str:
    """All programs of the PATH but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_machine_without_java_runs_source_and_sink(spark_server: RunningServer, queues: Queues, tmp_path: Path) -> None:
    source, target = fresh(), fresh()
    queues.put_numbers(source, 0, 30)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": path_without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ("local[2]", spark_server.url, source, target, str(tmp_path / "checkpoint"), "0", "")
    with job(tmp_path / "job.log", sys.executable, str(PROGRAM), *words, environ=environ) as running:
        running.wait_for("copied 30")
        running.wait_for("snapshot 30 29 of 35")
    assert len(queues.payloads(target)) == 35
    assert [line for line in running.lines() if line.startswith("Spark: ")][:2] == [
        "Spark: finding Java",
        "Spark: starting on local[2]",
    ]
    assert list((tmp_path / "cache" / "forebay").glob("java-*/bin/java"))


FLOW = """
spark: {{master: "sc://127.0.0.1:{port}"}}
flows:
  - name: squares
    mode: stream
    source: {{queue: events, payloadAs: json, schema: "n INT NOT NULL, word STRING"}}
    actions: [{{name: square, class: shop_actions.Square}}]
    sink: {{queue: squares}}
  - name: parcels
    source: {{queue: events, payloadAs: json, schema: "n INT NOT NULL, word STRING", parcel_messages: 20}}
    actions:
      - {{name: square, class: shop_actions.ParcelSquare}}
      - {{name: small, class: shop_actions.Small}}
      - {{name: told, sql: "SELECT did, word, square FROM input", isolate: true}}
    sinks: [{{queue: parcels}}, {{table: {{path: {folder}, partitionBy: [did]}}}}]
"""


def test_connect_server_without_forebay_runs_source_sink_foreach_batch_and_a_flow_with_a_function_of_its_own(
    tmp_path: Path,
) -> None:
    port = free_port()
    with (
        RunningServer(tmp_path / "server") as queue_server,
        connect_server(tmp_path, port, bare_python(tmp_path / "bare", "msgspec")) as server,
    ):
        queues = Queues(queue_server)
        queues.put_numbers("numbers", 0, 30)
        events = [b'{"n": %d, "word": "w%d"}' % (n, n) for n in range(40)]
        negative = b'{"n": -1, "word": "negative"}'
        queues.put("events", {"payload": [*events, b"no event", b'{"word": "no number"}', negative]})
        server.wait_until_ready()
        words = (f"sc://127.0.0.1:{port}", queue_server.url, "numbers", "copies", str(tmp_path / "checkpoint"), "0", "")
        with job(tmp_path / "job.log", sys.executable, str(PROGRAM), *words) as running:
            running.wait_for("copied 30")
            running.wait_for("snapshot 30 29 of 35")
            running.wait_for("json 41 2")
        assert len(queues.payloads("copies")) == 35
        assert numbered(queues, "batches") == list(range(30))

        settings = tmp_path / "forebay.yaml"
        settings.write_text(FLOW.format(port=port, folder=tmp_path / "table"))
        (tmp_path / "shop_actions.py").write_bytes(Path(__file__).with_name("shop_actions.py").read_bytes())
        command = [sys.executable, "-m", "forebay", "flows"]
        checked = subprocess.run([*command, "check", str(settings)], capture_output=True, text=True, check=False)
        assert "ok, 2 flows" in checked.stdout, checked.stdout + checked.stderr
        where = ("--once", "-c", str(settings), "--url", queue_server.url, "--data-dir", str(tmp_path / "data"))
        done = subprocess.run([*command, "run", "squares", *where], capture_output=True, text=True, check=False)
        assert "squares: 43 rows read in 1 batch, 3 bad" in done.stdout, done.stdout + done.stderr
        found = [json.loads(payload) for payload in queues.payloads("squares")]
        assert sorted(row["square"] for row in found) == [n * n for n in range(40) if n % 3]
        assert len(queues.payloads("squares.errors")) == 3
        assert_set_aside(queues, negative)

        done = subprocess.run([*command, "run", "parcels", *where], capture_output=True, text=True, check=False)
        assert "parcels: 43 rows" in done.stdout, done.stdout + done.stderr
        found = [json.loads(payload) for payload in queues.payloads("parcels")]
        assert sorted(row["square"] for row in found) == [n * n for n in range(30) if n % 3]
        assert {path.name.partition("=")[0] for path in (tmp_path / "table").iterdir() if path.is_dir()} == {"did"}
        letters = {row["payload"]: json.loads(row["headers"]) for row in queues.rows("parcels.errors")}
        assert {payload: told["holds"] for payload, told in letters.items()} == dict.fromkeys(
            (b"no event", b'{"word": "no number"}', negative), "input"
        )


def assert_set_aside(queues: Queues, payload: bytes) -> None:
    """A record on which the action's own function fails is in the error queue with what it raised."""
    [letter] = [found for found in queues.rows("squares.errors") if found["payload"] == payload]
    headers = json.loads(letter["headers"])
    assert (headers["action"], headers["cause"]) == ("square", "ValueError: -1 is below zero")
    assert "in _times" in headers["traceback"]


def test_program_of_spark_submit_runs_where_spark_submit_says_with_its_settings(tmp_path: Path) -> None:
    command = submitting("local[1]", SUBMITTED_PROGRAM)
    command[1:1] = ["--name", "mine", "--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0"]
    environ = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java().home)}
    with job(tmp_path / "job.log", *command, environ=environ | {"PYSPARK_PYTHON": sys.executable}) as running:
        running.wait_for_line_with("refused: ")
    assert [line for line in running.lines() if re.match("(spark[.].*|same)=|refused", line)] == [
        "spark.master=local[1]",
        "spark.app.name=mine",
        "spark.ui.enabled=true",
        "spark.sql.session.timeZone=UTC",
        "same=True url=http://127.0.0.1:1",
        f"refused: {REFUSED}",
    ]


def test_cluster_that_loses_a_worker_and_a_server_runs_a_job_and_a_flow_on_two_servers_exactly_once(
    postgres_database: str, tmp_path: Path
) -> None:
    port = free_port()
    numbers, events = range(300), range(400)
    with (
        master(tmp_path, port) as head,
        worker(tmp_path, "a", port) as lost,
        worker(tmp_path, "b", port),
        RunningServer(tmp_path / "first", store=postgres_database) as first,
        RunningServer(tmp_path / "second", store=postgres_database) as second,
    ):
        queues = Queues(second)
        queues.put_numbers("numbers", numbers.start, numbers.stop)
        negative = b'{"n": -1, "word": "negative"}'
        good = [b'{"n": %d, "word": "w%d"}' % (n, n) for n in events]
        queues.put("events", {"payload": [*good, b"no event", negative]})
        head.wait_until_ready()
        python = str(bare_python(tmp_path / "bare"))
        words = (f"{first.url},{second.url}", python, str(tmp_path))
        command = submitting(f"spark://127.0.0.1:{port}", CLUSTER_PROGRAM, *words)
        environ = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java().home)}
        environ |= {"PYSPARK_DRIVER_PYTHON": sys.executable}
        with job(tmp_path / "job.log", *command, environ=environ) as running:
            running.wait_for(f"master spark://127.0.0.1:{port}")
            running.wait_for("json 401 1")
            assert numbered(queues, "batches") == list(numbers)
            running.wait_for("job 1")
            running.wait_for_line_with("squares: batch 0: ")
            lost.kill()
            first.kill()
            squares = [{"word": f"w{n}", "square": n * n} for n in events if n % 3]
            wait_until(lambda: running.is_well() and queues.lag("job", "numbers") == 0, SECONDS_MAX)
            wait_until(lambda: running.is_well() and queues.lag("squares", "events") == 0, SECONDS_MAX)
            wait_until(lambda: running.is_well() and queues.size("squares.errors") == 2, SECONDS_MAX)
            (tmp_path / "STOP").touch()
            running.wait_for("stopped")
        assert numbered(queues, "copies") == list(numbers)
        found = [json.loads(payload) for payload in queues.payloads("squares")]
        assert sorted(found, key=lambda row: row["square"]) == squares
        assert sorted(queues.payloads("squares.errors")) == sorted([b"no event", negative])
        assert_set_aside(queues, negative)
