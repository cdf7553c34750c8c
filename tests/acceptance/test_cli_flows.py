"""Flows as a user has them: check, list, pause, a worker that is killed, and `forebay up` with its one Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fixtures.fix_spark import Queues, wait_for
from fixtures.spark_processes import short_lived
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import descendants, free_port

START_SECONDS_MAX = 240.0
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


WRONG = """\
flows:
  - {name: fine, mode: stream, source: {queue: q1}, sink: {table: {path: fine, partitionBy: [partition]}}}
  - name: column
    mode: stream
    source: {queue: q2}
    actions: [{name: wrong, sql: "SELECT\\n no_such FROM input"}]
    sink: {queue: out}
  - name: watermark
    mode: stream
    source: {queue: q3}
    actions: [{name: sums, sql: "SELECT partition, count(*) AS n FROM input GROUP BY partition"}]
    sink: {queue: out}
  - {name: partition, mode: stream, source: {queue: q4}, sink: {table: {path: t, partitionBy: [nope]}}}
  - {name: modes, mode: stream, source: {queue: q5}, sink: {table: {path: t, mode: complete}}}
  - {name: format, mode: stream, source: {queue: q6}, sink: {table: {path: t, format: parkay}}}
  - {name: traceback, mode: stream, source: {queue: q7, startingTimestamp: yesterday}, sink: {queue: out}}
"""


def test_check_finds_what_the_worker_would_find(file: Path) -> None:
    file.write_text(WRONG)
    done = forebay(file.parent, "flows", "check", file.name, "-o", "json")
    assert done.returncode == 1, done.stderr
    faults = {fault["flow"]: fault for fault in json.loads(done.stdout)["faults"]}
    assert set(faults) == {"column", "watermark", "partition", "modes", "format", "traceback"}
    assert faults["column"]["place"] == "forebay.yaml line 6"
    assert faults["column"]["key"] == "actions.0"
    assert "[UNRESOLVED_COLUMN" in faults["column"]["message"]
    assert "line 2 pos 1" in faults["column"]["message"]
    assert "watermark" in faults["watermark"]["message"]
    assert "there is no column nope; the columns are seq, partition," in faults["partition"]["message"]
    assert "output mode: complete. This output mode is not supported" in faults["modes"]["message"]
    assert "parkay" in faults["format"]["message"]
    assert "a time such as 2026-01-31T12:00:00Z" in faults["traceback"]["message"]
    assert "Traceback" not in done.stdout + done.stderr
    assert not (file.parent / "t").exists()
    assert not (file.parent / "fine").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("worker",), "no file was named that defines flows"),
        (("flows", "run", "nope", "-c", "forebay.yaml"), "no flow 'nope'. There are copy"),
        (("flows", "pause", "nope", "-c", "forebay.yaml"), "no flow 'nope'"),
        (("up", "-c", "missing.yaml"), "missing.yaml"),
    ],
)
def test_what_cannot_be_done_is_told_without_a_traceback(file: Path, words: tuple[str, ...], told: str) -> None:
    done = forebay(file.parent, *words)
    assert done.returncode == 1
    assert told in done.stderr.replace("\n  ", ". ")
    assert "Traceback" not in done.stderr


def test_list_pause_and_resume_say_and_do_the_same_wherever_they_are_run(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    with RunningServer(tmp_path / "server") as server:
        words = ("-c", file.name, "--url", server.url)
        (never,) = json.loads(forebay(file.parent, "flows", "list", *words, "-o", "json").stdout)
        assert (never["name"], never["state"], never["lag"]) == ("copy", "stopped", None)
        assert "no flow 'copy'" in forebay(elsewhere, "flows", "pause", "copy", "--url", server.url).stderr
        assert forebay(file.parent, "flows", "pause", "copy", *words).stdout == "copy: to be paused\n"
        (listed,) = json.loads(forebay(elsewhere, "flows", "list", "--url", server.url, "-o", "json").stdout)
        assert (listed["name"], listed["state"], listed["lag"], listed["is_paused"]) == ("copy", "paused", None, True)
        table = forebay(elsewhere, "flows", "list", "--url", server.url).stdout
        assert [line.split()[:3] for line in table.splitlines() if "copy" in line] == [["copy", "paused", "-"]]
        assert forebay(elsewhere, "flows", "resume", "copy", "--url", server.url).stdout == "copy: to be resumed\n"
        (listed,) = json.loads(forebay(elsewhere, "flows", "list", "--url", server.url, "-o", "json").stdout)
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

    def listed() -> dict[str, Any]:
        (found,) = queues.ask("GET", "/api/v1/flows")["flows"]
        return dict(found["report"])

    queues.put_numbers("numbers", 0, MESSAGES)
    up.wait_for_line("worker | copy: running")
    wait_for(lambda: listed()["state"] == "running", START_SECONDS_MAX)
    before = listed()
    wait_for(lambda: queues.size("copies") >= BATCH, START_SECONDS_MAX)
    os.kill(before["pid"], signal.SIGKILL)
    assert queues.size("copies") < MESSAGES
    up.wait_for_line("the worker ended with 137")
    wait_for(lambda: queues.size("copies") >= MESSAGES, START_SECONDS_MAX)
    assert sorted(map(int, queues.payloads("copies"))) == list(range(MESSAGES))
    # The next worker goes on counting. What the first did after its last report is not in it.
    wait_for(lambda: (now := listed())["lag"] == 0 and now["rows"] > before["rows"], START_SECONDS_MAX)
    after = listed()
    assert (after["state"], after["pid"] == before["pid"]) == ("running", False)
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    for word, state in (("pause", "paused"), ("resume", "running")):
        forebay(elsewhere, "flows", word, "copy", "--url", url)
        wait_for(lambda state=state: listed()["state"] == state, START_SECONDS_MAX)  # type: ignore[misc]
    assert up.ended(signal.SIGINT) == 0
    assert "worker | copy: stopped" in up.lines
    assert [line for line in up.lines if "Traceback" in line] == []


def test_killed_up_leaves_no_process_behind_not_even_a_java_that_does_not_answer(
    file: Path, tmp_path: Path, programs: list[Program]
) -> None:
    up = Program(tmp_path, "up", "-c", file.name, "--server-port", "0", "--spark-ui-port", str(free_port()))
    programs.append(up)
    url = up.wait_for_line("server | forebay: serving ").split("serving ")[1].split(" ")[0]
    server = RunningServer(tmp_path / "unused")
    server.url = url
    queues = Queues(server)
    queues.put_numbers("numbers", 0, MESSAGES)
    ui = up.wait_for_line("worker | Spark: its pages are at ").rsplit(" ", 1)[1]
    wait_for(lambda: queues.size("copies") >= BATCH, START_SECONDS_MAX)
    with urlopen(f"{ui}/api/v1/applications", timeout=30) as answer:
        assert [one["name"] for one in json.loads(answer.read())] == ["forebay"]
    family = descendants(up.process.pid)
    assert len(family) >= 5, "server, worker, Java, and Python processes of Spark"
    (java,) = [pid for pid in family if is_alive(pid) and Path(f"/proc/{pid}/comm").read_text() == "java\n"]
    # The worker waits for it when it is to stop.
    os.kill(java, signal.SIGSTOP)
    up.process.kill()
    try:
        # They promise 5 s, and a machine may be busy. Without the promise it would be for ever.
        wait_for(lambda: not [pid for pid in family if is_alive(pid)], 20)
    finally:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_up_ends_with_the_exit_code_of_a_part_that_cannot_start(file: Path, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "server") as server:
        done = forebay(tmp_path, "up", "-c", file.name, "--server-port", server.url.rpartition(":")[2])
    assert done.returncode == 1
    assert "server | forebay: error: " in done.stdout
    assert "is taken" in done.stdout
