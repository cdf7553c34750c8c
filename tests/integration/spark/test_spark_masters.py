"""Everywhere that Spark runs: without a Java, behind Spark Connect, on a cluster that loses parts of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.fix_spark import Queues, wait_for
from fixtures.running_stores import fresh
from fixtures.spark_processes import bare_python, connect_server, free_port, master, short_lived, worker
from forebay.testing.running_server import RunningServer

PROGRAM = Path(__file__).with_name("copy_job.py")
CLUSTER_PROGRAM = Path(__file__).with_name("cluster_job.py")
SECONDS_MAX = 200


class Job:
    """The program in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, line: str) -> None:
        wait_for(lambda: self.is_well() and line in self.lines(), SECONDS_MAX)

    def wait_for_line_with(self, text: str) -> None:
        wait_for(lambda: self.is_well() and text in self._log.read_text(), SECONDS_MAX)

    def is_well(self) -> bool:
        if self._process.poll() not in (None, 0):
            pytest.fail(f"it ended:\n{self._log.read_text()[-5000:]}")
        return True

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()


@contextmanager
def job(log: Path, *words: str, environ: dict[str, str] | None = None, program: Path = PROGRAM) -> Iterator[Job]:
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(program), *words],
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
    with job(tmp_path / "job.log", *words, environ=environ) as running:
        running.wait_for("copied 30")
    assert numbered(queues, target) == list(range(30))
    assert [line for line in running.lines() if line.startswith("Spark: ")][:2] == [
        "Spark: finding Java",
        "Spark: starting on local[2]",
    ]
    assert list((tmp_path / "cache" / "forebay").glob("java-*/bin/java"))


def test_connect_server_without_forebay_runs_source_and_sink(
    spark_server: RunningServer, queues: Queues, tmp_path: Path
) -> None:
    source, target = fresh(), fresh()
    queues.put_numbers(source, 0, 30)
    port = free_port()
    with connect_server(tmp_path, port, bare_python(tmp_path / "bare")) as server:
        server.wait_until_ready()
        words = (f"sc://127.0.0.1:{port}", spark_server.url, source, target, str(tmp_path / "checkpoint"), "0", "")
        with job(tmp_path / "job.log", *words) as running:
            running.wait_for("copied 30")
    assert numbered(queues, target) == list(range(30))


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
        queues.put("events", {"payload": [*(b'{"n": %d, "word": "w%d"}' % (n, n) for n in events), b"no event"]})
        head.wait_until_ready()
        python = str(bare_python(tmp_path / "bare"))
        words = (f"spark://127.0.0.1:{port}", f"{first.url},{second.url}", python, str(tmp_path))
        with job(tmp_path / "job.log", *words, program=CLUSTER_PROGRAM) as running:
            running.wait_for("job 1")
            running.wait_for_line_with("squares: batch 0: ")
            lost.kill()
            first.kill()
            squares = [{"word": f"w{n}", "square": n * n} for n in events if n % 3]
            wait_for(lambda: running.is_well() and queues.lag("job", "numbers") == 0, SECONDS_MAX)
            wait_for(lambda: running.is_well() and queues.lag("squares", "events") == 0, SECONDS_MAX)
            wait_for(lambda: running.is_well() and queues.size("squares.errors") == 1, SECONDS_MAX)
            (tmp_path / "STOP").touch()
            running.wait_for("stopped")
        assert numbered(queues, "copies") == list(numbers)
        found = [json.loads(payload) for payload in queues.payloads("squares")]
        assert sorted(found, key=lambda row: row["square"]) == squares
        assert queues.payloads("squares.errors") == [b"no event"]
