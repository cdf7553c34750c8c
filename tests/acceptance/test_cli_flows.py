"""Flows as a user has them: check, list, pause, a worker that is killed, and `forebay up` with its one Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.fix_spark import Queues, wait_for
from fixtures.spark_processes import short_lived
from forebay.testing.running_server import RunningServer

START_SECONDS_MAX = 120.0
MESSAGES = 6_000
BATCH = 500
COPY = """\
flows:
  - name: copy
    mode: stream
    source: {queue: numbers, maxOffsetsPerTrigger: 500}
    sink: {queue: copies}
    trigger: 0s
"""


def clean_environ(folder: Path) -> dict[str, str]:
    named = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**named, **short_lived(folder)}


class Program:
    """A started `forebay …`; its lines are collected as they come."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forebay", *words],
            cwd=folder,
            env=clean_environ(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip("\n"))

    def wait_for_line(self, text: str) -> str:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            found = [line for line in list(self.lines) if text in line]
            if found:
                return found[0]
            assert self.process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)

    def ended(self, number: signal.Signals | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(START_SECONDS_MAX)
        self._reader.join()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "forebay.yaml"
    path.write_text(COPY)
    return path


def forebay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=clean_environ(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS_MAX,
    )


def test_check_lists_all_faults_of_flows_and_settings(file: Path) -> None:
    done = forebay(file.parent, "flows", "check", file.name, "--no-spark")
    assert (done.returncode, done.stdout) == (0, "forebay.yaml: ok, 1 flow (not compiled by Spark)\n")
    file.write_text("prfile: x\n" + COPY + "    sinc: 1\n    source: {}\n")
    done = forebay(file.parent, "flows", "check", file.name, "--no-spark", "-o", "json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [fault["key"] for fault in told["faults"]] == ["", "source", "sinc"]
    assert "prfile" in told["faults"][0]["message"]
    assert "forebay.yaml line 8" in told["faults"][2]["place"]


def test_check_lets_spark_compile_the_flows(file: Path) -> None:
    file.write_text(COPY + '    actions: [{name: wrong, sql: "SELECT\\n no_such FROM input"}]\n')
    done = forebay(file.parent, "flows", "check", file.name)
    assert done.returncode == 1, done.stderr
    assert "forebay.yaml line 7: copy: actions.0: [UNRESOLVED_COLUMN" in done.stdout
    assert "line 2 pos 1" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("worker",), "no file was named that defines flows"),
        (("flows", "run", "nope", "-c", "forebay.yaml"), "no flow 'nope'. There are copy"),
        (("flows", "pause", "nope"), "no flow 'nope'"),
        (("up", "-c", "missing.yaml"), "missing.yaml"),
    ],
)
def test_what_cannot_be_done_is_told_without_a_traceback(file: Path, words: tuple[str, ...], told: str) -> None:
    done = forebay(file.parent, *words)
    assert done.returncode == 1
    assert told in done.stderr.replace("\n  ", ". ")
    assert "Traceback" not in done.stderr


def test_list_shows_flows_that_never_ran_and_those_that_are_paused(file: Path) -> None:
    assert forebay(file.parent, "flows", "pause", "copy", "-c", file.name).stdout == "copy: to be paused\n"
    words = ("flows", "list", "-c", file.name, "--url", "http://127.0.0.1:9", "-o", "json")
    (listed,) = json.loads(forebay(file.parent, *words).stdout)
    assert (listed["name"], listed["state"], listed["lag"]) == ("copy", "paused", None)
    forebay(file.parent, "flows", "resume", "copy")
    (listed,) = json.loads(forebay(file.parent, *words).stdout)
    assert listed["state"] == "stopped"


def test_run_once_ends_when_everything_is_read(file: Path, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "server") as server:
        queues = Queues(server)
        queues.put_numbers("numbers", 0, 700)
        once = forebay(tmp_path, "flows", "run", "copy", "--once", "-c", file.name, "--url", server.url)
        assert (once.returncode, once.stdout) == (0, "copy: 700 rows read in 2 batches\n")
        assert sorted(map(int, queues.payloads("copies"))) == list(range(700))


def test_up_restarts_a_worker_that_is_killed_in_a_batch_loses_and_doubles_nothing_and_stops_at_one_interrupt(
    file: Path, tmp_path: Path, programs: list[Program]
) -> None:
    up = Program(tmp_path, "up", "-c", file.name, "--server-port", "0")
    programs.append(up)
    url = up.wait_for_line("server | forebay: serving ").split("serving ")[1].split(" ")[0]
    server = RunningServer(tmp_path / "unused")
    server.url = url
    queues = Queues(server)
    queues.put_numbers("numbers", 0, MESSAGES)
    up.wait_for_line("worker | copy: running")
    wait_for(lambda: queues.size("copies") >= BATCH, START_SECONDS_MAX)
    worker = json.loads((tmp_path / "forebay-data" / "flows" / "copy" / "state.json").read_text())["pid"]
    os.kill(worker, signal.SIGKILL)
    assert queues.size("copies") < MESSAGES
    up.wait_for_line("the worker ended with 137")
    words = ("flows", "list", "-c", file.name, "--data-dir", "forebay-data", "--url", url, "-o", "json")
    (listed,) = json.loads(forebay(tmp_path, *words).stdout)
    assert (listed["state"], listed["lag"] > 0) == ("stopped", True)
    wait_for(lambda: queues.size("copies") >= MESSAGES, START_SECONDS_MAX)
    assert sorted(map(int, queues.payloads("copies"))) == list(range(MESSAGES))
    assert up.ended(signal.SIGINT) == 0
    assert "worker | copy: stopped" in up.lines
    assert [line for line in up.lines if "Traceback" in line] == []


def test_up_ends_with_the_exit_code_of_a_part_that_cannot_start(file: Path, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "server") as server:
        done = forebay(tmp_path, "up", "-c", file.name, "--server-port", server.url.rpartition(":")[2])
    assert done.returncode == 1
    assert "server | forebay: error: " in done.stdout
    assert "is taken" in done.stdout
