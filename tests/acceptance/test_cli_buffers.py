"""`forebay buffers` as an operator meets it: real servers, the files that they wrote, and their damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.cli.buffer_retry import retry_file
from forebay.client import Client
from forebay.filesystem import RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.event import frames_of
from forebay.model.push_run import PushRun, run_of_one
from forebay.testing.running_server import RunningServer

LONG_MS = 3_600_000
KEY = "QUEEN_ENCRYPTION_KEY"


def document(*words: object, code: int = 0) -> Any:
    done = typed(*words, "-o", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "other") as running:
        yield running


def buffered(server: RunningServer, queue: str, count: int, start: int = 0, partitions: int = 1) -> None:
    """QoS 0 events that stay in the file for an hour, or until the next start."""
    items = [
        {
            "queue": queue,
            "partition": f"p{n % partitions}",
            "transactionId": f"{queue}-{n}",
            "traceId": f"trace-{n}",
            "payload": {"n": n, "text": "ü" * 10},
        }
        for n in range(start, start + count)
    ]
    http = Http(server.url)
    told = http.post("/push", {"items": items, "bufferMs": LONG_MS, "bufferMax": 1_000_000})
    assert (told.status, told.json["qos0"]) == (201, True)
    http.close()


def stored(server: RunningServer, queue: str) -> list[dict[str, Any]]:
    http = Http(server.url)
    told = http.get(f"/api/v1/messages?queue={queue}&limit=10000")
    http.close()
    return list(told.json["messages"]) if told.status == 200 else []


def qos0_file(server: RunningServer) -> Path:
    return server.data_dir / "buffers" / "qos0.buf"


def test_list_tells_each_file_with_its_events_and_what_is_strange(server: RunningServer) -> None:
    base = server.data_dir / "buffers"
    assert document("buffers", "list", base)["files"] == []
    buffered(server, "metrics", 30)
    buffered(server, "clicks", 12)
    (base / "notes.txt").write_text("mine")
    (base / "failed" / "failover_2026-01-02T03:04:05.000006.damaged").write_bytes(b"???")
    told = document("buffers", "list", base)
    assert (told["events"], told["drainer"]) == (42, f"process {server.pid}")
    files = {one["name"]: one for one in told["files"]}
    assert (files["qos0.buf"]["state"], files["qos0.buf"]["kind"]) == ("active", "qos0")
    assert files["qos0.buf"]["queues"] == {"metrics": 30, "clicks": 12}
    assert 0 <= files["qos0.buf"]["oldestSeconds"] < 60
    assert files["qos0.buf"]["bytes"] == qos0_file(server).stat().st_size
    assert files["failed/failover_2026-01-02T03:04:05.000006.damaged"]["state"] == "damaged"
    assert files["notes.txt"]["state"] == "unknown"
    for words in (["--data-dir", server.data_dir], ["--buffer-dir", base]):
        assert "metrics 30, clicks 12" in typed("buffers", "list", *words).stdout
    asked = document("buffers", "list", "--server", server.url)
    assert (asked["pending"], asked["queues"]) == (42, {"metrics": 30, "clicks": 12})
    assert "42 events wait, 0 are refused" in typed("buffers", "list", "--server", server.url).stdout
    refused = typed("buffers", "list", base / "elsewhere")
    assert (refused.returncode, "there is no such directory" in refused.stderr) == (1, True)


def test_show_tells_every_event_and_shortens_what_is_long(server: RunningServer) -> None:
    buffered(server, "metrics", 150, partitions=3)
    told = document("buffers", "show", qos0_file(server))
    assert (told["count"], told["damaged"], told["drainedBytes"]) == (150, [], 0)
    assert [event["transactionId"] for event in told["events"]] == [f"metrics-{n}" for n in range(150)]
    last = told["events"][-1]
    assert (last["queue"], last["partition"], last["traceId"]) == ("metrics", "p2", "trace-149")
    assert last["payload"] == {"n": 149, "text": "ü" * 10}
    assert last["position"] + last["bytes"] == qos0_file(server).stat().st_size
    table = typed("buffers", "show", qos0_file(server))
    assert table.returncode == 0
    assert "metrics-99" in table.stdout
    assert "metrics-100" not in table.stdout
    assert "100 of 150 events" in table.stdout
    assert len(document("buffers", "show", qos0_file(server), "--limit", 7)["events"]) == 7


def test_damage_is_told_with_its_place_and_costs_itself_alone(server: RunningServer, tmp_path: Path) -> None:
    buffered(server, "metrics", 10)
    events = document("buffers", "show", qos0_file(server))["events"]
    copy = tmp_path / "copy.buf"
    data = bytearray(qos0_file(server).read_bytes())
    data[events[4]["position"] + 40] ^= 0xFF
    copy.write_bytes(bytes(data) + b"\x99\x00\x00\x00torn")
    told = document("buffers", "show", copy, code=1)
    assert [event["transactionId"] for event in told["events"]] == [f"metrics-{n}" for n in range(10) if n != 4]
    middle, end = told["damaged"]
    assert (middle["position"], middle["bytes"], middle["tornTail"]) == (
        events[4]["position"],
        events[4]["bytes"],
        False,
    )
    assert (end["position"], end["bytes"], end["tornTail"]) == (len(data), 8, True)
    table = typed("buffers", "show", copy)
    assert (table.returncode, "torn end" in table.stdout) == (1, True)
    exported = typed("buffers", "export", copy)
    assert (exported.returncode, len(exported.stdout.splitlines())) == (1, 9)
    assert "2 damaged ranges" in exported.stderr


def test_exported_lines_are_pushed_elsewhere_with_their_ids(
    server: RunningServer, other: RunningServer, tmp_path: Path
) -> None:
    buffered(server, "metrics", 1200, partitions=2)
    buffered(server, "clicks", 3)
    lines = tmp_path / "out.ndjson"
    assert typed("buffers", "export", qos0_file(server), "--to", lines).returncode == 0
    again = typed("buffers", "export", qos0_file(server), "--to", lines)
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    assert typed("buffers", "export", qos0_file(server)).stdout == lines.read_text()
    push = ["push", "--items", "--file", lines, "--url", other.url]
    assert document(*push) == {"pushed": 1203, "duplicates": 0}
    assert document(*push) == {"pushed": 1203, "duplicates": 1203}
    found = stored(other, "metrics")
    assert [message["transactionId"] for message in found] == [f"metrics-{n}" for n in range(1200)]
    assert found[7]["data"] == {"n": 7, "text": "ü" * 10}
    assert (found[7]["partition"], found[7]["traceId"]) == ("p1", "trace-7")
    assert len(stored(other, "clicks")) == 3
    for wrong in (["push", "--items", "queue"], ["push"], ["push", "queue", "--items", "--text"]):
        assert typed(*wrong, "--url", other.url).returncode == 2


def test_what_a_full_queue_refuses_is_failed_and_a_running_server_keeps_its_hands_on_it(
    server: RunningServer, other: RunningServer
) -> None:
    http = Http(server.url)
    assert http.post("/configure", {"queue": "small", "options": {"maxSize": 5}}).status in (200, 201)
    http.push("small", *range(5))  # and now there is no room for any
    items = [{"queue": "small", "partition": "p", "transactionId": f"s-{n}", "payload": n} for n in range(20)]
    assert http.post("/push", {"items": items, "bufferMs": 1, "bufferMax": 1}).status == 201
    wait_until(lambda: bool(http.get("/api/v1/status/buffers").json["failed"]))
    http.close()
    told = document("buffers", "list", "--server", server.url)
    assert (told["failed"], told["failedFiles"][0]["queue"]) == (20, "small")
    (one,) = document("buffers", "list", server.data_dir / "buffers")["files"]
    assert (one["state"], one["events"], one["queues"]) == ("failed", 20, {"small": 20})
    file = server.data_dir / "buffers" / one["name"]
    refused = typed("buffers", "retry", file, "--server", other.url)
    assert (refused.returncode, "a running server drains" in refused.stderr) == (1, True)
    assert file.exists()
    server.kill()
    done = document("buffers", "retry", file, "--server", other.url)
    assert (done["pushed"], done["duplicates"], done["damaged"]) == (20, 0, [])
    assert [message["data"] for message in stored(other, "small")] == list(range(20))
    assert not file.exists()
    assert Path(done["renamed"]).name == f"{file.name}.retried"
    server.start()
    assert document("buffers", "list", "--server", server.url)["failed"] == 0


def test_retry_stores_in_order_and_once_however_often(
    server: RunningServer, other: RunningServer, tmp_path: Path
) -> None:
    buffered(server, "metrics", 2500, partitions=5)
    copies = [Path(shutil.copy(qos0_file(server), tmp_path / f"copy{n}.buf")) for n in range(2)]
    assert document("buffers", "retry", copies[0], "--server", other.url)["duplicates"] == 0
    assert document("buffers", "retry", copies[1], "--server", other.url)["duplicates"] == 2500
    found = stored(other, "metrics")
    assert [message["transactionId"] for message in found] == [f"metrics-{n}" for n in range(2500)]
    assert not any(copy.exists() for copy in copies)
    assert (tmp_path / "copy0.buf.retried").read_bytes() == qos0_file(server).read_bytes()


class AppendedTo(Client):
    """While it pushes for the first time, a server that came up appends to the same file."""

    def __init__(self, url: str, directory: BufferDirectory) -> None:
        super().__init__(url)
        self._directory = directory
        self._late = [_item(n) for n in range(10, 15)]

    def post(self, path: str, body: object) -> Any:
        if self._late:
            frames = frames_of(self._late, is_failover=True, now_us=1, cipher=None)
            self._directory.append(BufferKind.FAILOVER, frames, is_durable=True)
            self._late = []
        return super().post(path, body)


def _item(number: int) -> PushRun:
    return run_of_one("tasks", "p", b"%d" % number, f"t-{number}")


def test_retry_begins_where_the_drain_ended_and_takes_what_is_appended_meanwhile(
    other: RunningServer, tmp_path: Path
) -> None:
    directory = BufferDirectory(RealFilesystem(), tmp_path / "buffers")
    directory.prepare()
    frames = frames_of([_item(n) for n in range(10)], is_failover=True, now_us=1, cipher=None)
    drained = directory.append(BufferKind.FAILOVER, frames[:4], is_durable=True).end
    directory.append(BufferKind.FAILOVER, frames[4:], is_durable=True)
    path = directory.active(BufferKind.FAILOVER)
    directory.positions.note(path, drained)
    assert directory.take_drain_lock("somebody")
    directory.release_drain_lock()
    with AppendedTo(other.url, directory) as client:
        done = retry_file(client, path, None)
    assert (done.pushed, done.renamed.exists(), path.exists()) == (11, True, False)
    assert [message["data"] for message in stored(other, "tasks")] == list(range(4, 15))
    assert directory.take_drain_lock("the next one")
    directory.release_drain_lock()


def test_retry_that_nobody_answers_leaves_the_file(server: RunningServer, tmp_path: Path) -> None:
    buffered(server, "metrics", 5)
    copy = Path(shutil.copy(qos0_file(server), tmp_path / "copy.buf"))
    done = typed("buffers", "retry", copy, "--server", "http://127.0.0.1:9")
    assert (done.returncode, "http://127.0.0.1:9" in done.stderr, copy.exists()) == (1, True, True)
    assert "Traceback" not in done.stderr


def test_sealed_payloads_are_shown_with_the_key_alone(
    tmp_path: Path, other: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {KEY: "11" * 32}
    monkeypatch.setenv(KEY, key[KEY])
    with RunningServer(tmp_path / "sealing") as sealing:
        buffered(sealing, "metrics", 2)
        file = qos0_file(sealing)
        copy = Path(shutil.copy(file, tmp_path / "copy.buf"))
    assert b"text" not in copy.read_bytes()
    assert "(sealed)" in typed("buffers", "show", copy).stdout
    (first, _) = document("buffers", "show", copy)["events"]
    assert (first["sealed"], first["payload"]) == (True, None)
    assert '{"n": 1' in typed("buffers", "show", copy, environ=key).stdout
    refused = typed("buffers", "retry", copy, "--server", other.url)
    assert (refused.returncode, "there is no key" in refused.stderr) == (1, True)
    assert stored(other, "metrics") == []
    assert typed("buffers", "retry", copy, "--server", other.url, environ=key).returncode == 0
    assert [message["data"]["n"] for message in stored(other, "metrics")] == [0, 1]
