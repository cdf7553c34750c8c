"""Flows as a user has them: check, list, pause, a worker that is killed, and `forebay up` with its one Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.request import urlopen

import pytest

from fixtures.fix_spark import Queues
from fixtures.spark_processes import short_lived
from fixtures.waiting import wait_until
from forebay.cli.flow_retry import retry
from forebay.client.sync_client import SyncTransaction
from forebay.flows import Flow, QueueSink, Source, SqlAction
from forebay.flows.chains import dispatch_definition
from forebay.flows.definition import ErrorFilter
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import descendants, free_port

START_SECONDS_MAX = 240.0
MESSAGES = 6_000
BATCH = 500
GONE_SECONDS_MAX = 5.0
"""What is promised of the processes of a killed `forebay up`."""
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
  - {name: fine-parcels, source: {queue: p1}, sink: {table: {path: fine, partitionBy: [did]}}}
  - {name: parcel-format, source: {queue: p2}, sink: {table: {path: t, format: parkay}}}
  - {name: parcel-partition, source: {queue: p3}, sink: {table: {path: t, partitionBy: [nope]}}}
  - name: parcel-option
    source: {queue: p4}
    sinks:
      - {queue: out}
      - {table: {path: t, options: {compression: brittle}}}
  - {name: parcel-types, source: {queue: p5}, sink: {table: {path: t, format: text}}}
  - {name: traceback, mode: stream, source: {queue: q7, startingTimestamp: yesterday}, sink: {queue: out}}
"""


def test_check_finds_what_the_worker_would_find(file: Path) -> None:
    file.write_text(WRONG)
    done = forebay(file.parent, "flows", "check", file.name, "-o", "json")
    assert done.returncode == 1, done.stderr
    faults = {fault["flow"]: fault for fault in json.loads(done.stdout)["faults"]}
    on_parcels = {"parcel-format", "parcel-partition", "parcel-option", "parcel-types"}
    assert set(faults) == {"column", "watermark", "partition", "modes", "format", "traceback", *on_parcels}
    assert faults["column"]["place"] == "forebay.yaml line 6"
    assert faults["column"]["key"] == "actions.0"
    assert "[UNRESOLVED_COLUMN" in faults["column"]["message"]
    assert "line 2 pos 1" in faults["column"]["message"]
    assert "watermark" in faults["watermark"]["message"]
    assert "there is no column nope; the columns are seq, partition," in faults["partition"]["message"]
    assert "output mode: complete. This output mode is not supported" in faults["modes"]["message"]
    assert "parkay" in faults["format"]["message"]
    assert "parkay" in faults["parcel-format"]["message"]
    assert "there is no column nope" in faults["parcel-partition"]["message"]
    assert faults["parcel-option"]["key"] == "sinks.1"
    assert "brittle" in faults["parcel-option"]["message"]
    assert "doesn't support the column `seq`" in faults["parcel-types"]["message"]
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


def a_flow_with_a_step() -> Flow:
    actions = (
        SqlAction(name="parse", sql="SELECT did, 1 AS n FROM input"),
        SqlAction(name="geo", sql="SELECT n FROM input", isolate=True),
    )
    return Flow(name="orders", source=Source(queue="orders"), actions=actions, sink=QueueSink(queue="done"))


def put_letters(queues: Queues, *letters: tuple[bytes, dict[str, Any]]) -> None:
    """Into the error queue of the flow, each in a partition of its own."""
    payloads, headers = zip(*letters, strict=True)
    partitions = [chr(ord("p") + number) for number in range(len(letters))]
    told = [json.dumps({"flow": "orders", "cause": "no order", **one}) for one in headers]
    queues.put("orders.errors", {"payload": payloads, "headers": told, "partition": partitions})


BEHIND = {"queue": ".flow.orders.geo", "step": "geo", "action": "geo"}


def test_records_that_were_set_aside_are_listed_and_sent_through_the_flow_again_once(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "server") as server:
        queues = Queues(server)
        queues.ask("PUT", "/api/v1/dispatch/flows/orders", dispatch_definition(a_flow_with_a_step()))
        queues.put("orders", {"payload": [b"the original", b"another"], "partition": ["berlin", "berlin"]})
        put_letters(
            queues,
            (b'{"a":1.10}', {"queue": "orders", "seq": 7, "holds": "input"}),
            (b"\xff", {"queue": "orders", "seq": 8, "holds": "input"}),
            (b'{"n":1}', {"queue": "orders", "seq": 1, "holds": "row"}),
            (b'{"n":2}', {**BEHIND, "did": "d-1", "seq": 3, "holds": "input"}),
            (b'{"n":3.10}', {**BEHIND, "did": "d-1", "seq": 4, "holds": "input"}),
            (b'{"n":4}', {**BEHIND, "did": "d-2", "holds": "row"}),
            (b'{"n":5}', {"queue": "orders", "seq": 99, "did": "d-3", "holds": "row"}),
            (b'{"n":6}', {"queue": "returns", "seq": 1, "did": "d-4", "holds": "row"}),
        )
        # Made again since: message 1 is another one.
        queues.put("returns", {"payload": [b"of a younger queue"]})
        words = ("orders", "--url", server.url)
        shown = json.loads(forebay(tmp_path, "flows", "errors", *words, "-o", "json").stdout)
        assert [(one["payload"], one["headers"]["cause"]) for one in shown][2:4] == [
            ('{"n":1}', "no order"),
            ('{"n":2}', "no order"),
        ]
        assert "no order" in forebay(tmp_path, "flows", "errors", *words).stdout
        again = forebay(tmp_path, "flows", "retry", *words).stdout.splitlines()
        assert again[:2] == ["orders: 3 records sent to orders again", "orders: 2 records sent to step geo again"]
        assert again[2].startswith("3 cannot be sent alone")
        sent = sorted((row["payload"], row["partition"]) for row in queues.rows("orders"))
        assert sent == [
            (b"another", "berlin"),
            (b"the original", "berlin"),
            (b"the original", "berlin"),
            (b'{"a":1.10}', "p"),
            (b"\xff", "q"),
        ]
        assert queues.payloads(".flow.orders.geo") == [b'{"n":2}', b'{"n":3.10}']
        [parcel] = queues.ask("GET", "/api/v1/parcels?flow=orders&action=geo")["parcels"]
        assert (parcel["parent"], parcel["messages"], parcel["stepState"]) == ("d-1", 2, "QUEUED")
        left = queues.ask("GET", "/api/v1/dlq?queue=orders.errors&consumerGroup=retry")["messages"]
        assert sorted(one["errorMessage"] for one in left) == [
            "message 1 of queue returns, of which the row was made, is gone: forebay parcels replay d-4",
            "message 99 of queue orders, of which the row was made, is gone: forebay parcels replay d-3",
            "the row in front of action geo is no message: forebay parcels replay d-2",
        ]
        assert forebay(tmp_path, "flows", "retry", *words).stdout == "orders: 0 records sent again\n"
        assert "no server knows flow" in forebay(tmp_path, "flows", "retry", "x", "--url", server.url).stderr


def test_retry_that_is_killed_before_it_acknowledges_sends_no_record_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningServer(tmp_path / "server") as server:
        queues = Queues(server)
        queues.ask("PUT", "/api/v1/dispatch/flows/orders", dispatch_definition(a_flow_with_a_step()))
        # Long enough for a command on a busy machine.
        queues.ask("POST", "/api/v1/configure", {"queue": "orders.errors", "options": {"leaseTime": 5}})
        letter = {**BEHIND, "did": "d-1", "holds": "input"}
        put_letters(queues, (b'{"n":1}', letter), (b'{"n":2}', letter))
        with monkeypatch.context() as patch:
            patch.setattr(SyncTransaction, "commit", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                retry("orders", server.url)
        assert queues.payloads(".flow.orders.geo") == [b'{"n":1}', b'{"n":2}']
        # In other company than before: what came meanwhile is new, and the others are known.
        put_letters(queues, (b'{"n":3}', letter))
        told = ""

        def are_all_acknowledged() -> bool:
            nonlocal told
            told += forebay(tmp_path, "flows", "retry", "orders", "--url", server.url).stdout
            return sum(map(int, re.findall(r"orders: (\d+) records? sent to step geo", told))) == 3

        wait_until(are_all_acknowledged)
        assert queues.payloads(".flow.orders.geo") == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
        parcels = queues.ask("GET", "/api/v1/parcels?flow=orders")["parcels"]
        assert sorted(parcel["messages"] for parcel in parcels) == [1, 2]
        assert queues.ask("GET", "/api/v1/dlq?queue=orders.errors&consumerGroup=retry")["messages"] == []


def test_records_of_a_flow_that_catches_errors_go_back_to_the_queues_that_they_are_from(tmp_path: Path) -> None:
    flow = Flow(name="mend", source=Source(errors=ErrorFilter(flows=("orders",))), sink=QueueSink(queue="done"))
    with RunningServer(tmp_path / "server") as server:
        queues = Queues(server)
        queues.ask("PUT", "/api/v1/dispatch/flows/mend", dispatch_definition(flow))
        told = [json.dumps({"queue": queue, "cause": "no"}) for queue in ("orders", "returns", "")]
        queues.put("mend.errors", {"payload": [b"a", b"b", b"tick"], "headers": told})
        again = forebay(tmp_path, "flows", "retry", "mend", "--url", server.url).stdout.splitlines()
        assert again[:2] == ["mend: 1 record sent to orders again", "mend: 1 record sent to returns again"]
        assert (queues.payloads("orders"), queues.payloads("returns")) == ([b"a"], [b"b"])


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
    wait_until(lambda: listed()["state"] == "running", START_SECONDS_MAX)
    before = listed()
    wait_until(lambda: queues.size("copies") >= BATCH, START_SECONDS_MAX)
    os.kill(before["pid"], signal.SIGKILL)
    assert queues.size("copies") < MESSAGES
    up.wait_for_line("the worker ended with 137")
    wait_until(lambda: queues.size("copies") >= MESSAGES, START_SECONDS_MAX)
    assert sorted(map(int, queues.payloads("copies"))) == list(range(MESSAGES))
    # The next worker goes on counting. What the first did after its last report is not in it.
    wait_until(lambda: (now := listed())["lag"] == 0 and now["rows"] > before["rows"], START_SECONDS_MAX)
    after = listed()
    assert (after["state"], after["pid"] == before["pid"]) == ("running", False)
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    for word, state in (("pause", "paused"), ("resume", "running")):
        forebay(elsewhere, "flows", word, "copy", "--url", url)
        wait_until(lambda state=state: listed()["state"] == state, START_SECONDS_MAX)  # type: ignore[misc]
    assert up.ended(signal.SIGINT) == 0
    assert "worker | copy: stopped" in up.lines
    # Python processes of the Spark that was killed may complain of it; the worker itself has nothing to complain of.
    [restarted] = [number for number, line in enumerate(up.lines) if "the worker ended with 137" in line]
    [_, began] = [number for number, line in enumerate(up.lines) if line.startswith("worker | Spark: ready")]
    assert restarted < began
    assert [line for line in up.lines[began:] if "Traceback" in line] == [], "\n".join(up.lines)


@pytest.mark.timeout(900)
def test_killed_up_leaves_no_process_behind_after_5_s_not_even_a_java_that_does_not_answer(
    tmp_path: Path, programs: list[Program]
) -> None:
    rounds: list[float] = []
    # Once is enough: on a machine that is busy, they get to run late.
    while len(rounds) < 3 and min(rounds, default=GONE_SECONDS_MAX + 1) > GONE_SECONDS_MAX:
        folder = tmp_path / str(len(rounds))
        folder.mkdir()
        (folder / "forebay.yaml").write_text(COPY)
        up = Program(folder, "up", "-c", "forebay.yaml", "--server-port", "0", "--spark-ui-port", str(free_port()))
        programs.append(up)
        rounds.append(seconds_until_all_are_gone(up, folder))
    assert min(rounds) <= GONE_SECONDS_MAX


def seconds_until_all_are_gone(up: Program, folder: Path) -> float:
    """Kill it at work, while its Java is stopped."""
    url = up.wait_for_line("server | forebay: serving ").split("serving ")[1].split(" ")[0]
    server = RunningServer(folder / "unused")
    server.url = url
    queues = Queues(server)
    queues.put_numbers("numbers", 0, MESSAGES)
    ui = up.wait_for_line("worker | Spark: its pages are at ").rsplit(" ", 1)[1]
    wait_until(lambda: queues.size("copies") >= BATCH, START_SECONDS_MAX)
    with urlopen(f"{ui}/api/v1/applications", timeout=30) as answer:
        assert [one["name"] for one in json.loads(answer.read())] == ["forebay"]
    family = descendants(up.process.pid)
    assert len(family) >= 5, "server, worker, Java, and Python processes of Spark"
    (java,) = [pid for pid in family if is_alive(pid) and Path(f"/proc/{pid}/comm").read_text() == "java\n"]
    # The worker waits for it when it is to stop.
    os.kill(java, signal.SIGSTOP)
    up.process.kill()
    began = time.monotonic()
    try:
        wait_until(lambda: not [pid for pid in family if is_alive(pid)], 60)
        return time.monotonic() - began
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
