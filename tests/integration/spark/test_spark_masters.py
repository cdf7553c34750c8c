"""Everywhere that Spark runs: on a machine without Java, behind Spark Connect, on a cluster that loses a worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.fix_spark import Queues
from fixtures.running_stores import fresh
from fixtures.spark_processes import bare_python, connect_server, free_port, master, worker
from forebay.testing.running_server import RunningServer

PROGRAM = Path(__file__).with_name("copy_job.py")
SECONDS_MAX = 200


class Job:
    """The program in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while line not in self._log.read_text().splitlines():
            if self._process.poll() not in (None, 0) or time.monotonic() > deadline:
                pytest.fail(f"no {line!r} in:\n{self._log.read_text()[-5000:]}")
            time.sleep(0.05)

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()


@contextmanager
def job(log: Path, *words: str, environ: dict[str, str] | None = None) -> Iterator[Job]:
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ or {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
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


def test_cluster_without_forebay_that_loses_a_worker_copies_each_row_once(
    spark_server: RunningServer, queues: Queues, tmp_path: Path
) -> None:
    source, target = fresh(), fresh()
    queues.put_numbers(source, 0, 200)
    port = free_port()
    with master(tmp_path, port) as head, worker(tmp_path, "a", port) as lost, worker(tmp_path, "b", port):
        head.wait_until_ready()
        python = str(bare_python(tmp_path / "bare"))
        words = (
            f"spark://127.0.0.1:{port}",
            spark_server.url,
            source,
            target,
            str(tmp_path / "checkpoint"),
            "200",
            python,
        )
        with job(tmp_path / "job.log", *words) as running:
            running.wait_for("batch 2")
            lost.kill()
            running.wait_for("copied 200")
    assert numbered(queues, target) == list(range(200))
