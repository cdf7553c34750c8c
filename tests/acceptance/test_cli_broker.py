"""The commands that talk to a server, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.client import Client
from forebay.testing.running_server import RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


def forebay(server: RunningServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", *words, "--url", server.url]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def test_push_pop_and_tail(server: RunningServer) -> None:
    done = forebay(server, "push", "orders", '{"id": 7}')
    assert (done.returncode, done.stdout) == (0, "queued: seq 1, receipt log\n")
    assert forebay(server, "push", "orders", stdin='{"id": 8}\n\n{"id":9}\n').stdout == "pushed 2 messages\n"
    tail = forebay(server, "tail", "orders", "-n", "2", "-o", "json")
    assert [json.loads(line)["data"]["id"] for line in tail.stdout.splitlines()] == [8, 9]
    assert forebay(server, "pop", "orders@billing", "--batch", "2").stdout == '{"id": 7}\n{"id": 8}\n'
    (left,) = json.loads(forebay(server, "pop", "orders@billing", "--no-ack", "-o", "json").stdout)
    assert left["data"] == {"id": 9}
    assert forebay(server, "pop", "orders@billing").stdout == ""


def test_bytes_are_printed_as_base64(server: RunningServer) -> None:
    with Client(server.url) as client:
        client.push_many("raw", [b"\xff\0", b"\xff\0"])
    assert forebay(server, "pop", "raw").stdout == "/wA=\n"
    (shown,) = json.loads(forebay(server, "pop", "raw", "-o", "json").stdout)
    assert (shown["data"], shown["encoding"]) == ("/wA=", "base64")


def test_pop_says_why_there_is_nothing(server: RunningServer) -> None:
    assert forebay(server, "pop", "unknown@g").stderr == (
        "nothing: there is no queue 'unknown'; the first push makes it\n"
    )
    forebay(server, "push", "leased", stdin="1\n2\n")
    assert forebay(server, "pop", "leased@g", "--no-ack").stdout == "1\n"
    why = forebay(server, "pop", "leased@g").stderr
    assert re.fullmatch(r"nothing now: 2 wait for group 'g', 1 of them leased; some may come at \S+Z, in \d+ s\n", why)
    forebay(server, "pop", "leased", "--batch", "9")
    assert forebay(server, "pop", "leased").stderr == (
        "nothing: no message of 'leased' waits for the queue's own group\n"
    )


def test_leased_messages_are_finished_by_their_lease(server: RunningServer) -> None:
    forebay(server, "push", "slow", "1")
    told = forebay(server, "pop", "slow@g", "--no-ack").stderr
    lease = re.fullmatch(r"leased for 300 s, then delivered again. To finish: forebay ack (\S+)\n", told)
    assert lease is not None
    assert forebay(server, "ack", lease[1]).stdout == "acknowledged 1\n"
    again = forebay(server, "ack", lease[1])
    assert (again.returncode, "no such lease" in again.stderr) == (1, True)


def test_keyboard_is_told_that_it_is_read(server: RunningServer) -> None:
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"1\n2\n\x04")
        command = [sys.executable, "-m", "forebay", "push", "typed", "--url", server.url]
        done = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert (done.returncode, done.stdout) == (0, "pushed 2 messages\n")
    assert "reading one message per line from the keyboard; end with Ctrl-D" in done.stderr


def test_a_file_of_lines_is_pushed_and_a_bad_line_is_named(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(2500)))
    assert json.loads(forebay(server, "push", "events/p", "--file", str(file), "-o", "json").stdout) == {
        "pushed": 2500,
        "duplicates": 0,
    }
    file.write_text('{"n": 1}\n{"n": \n')
    done = forebay(server, "push", "events/p", "--file", str(file))
    assert done.returncode == 1
    assert "events.ndjson line 2 is not JSON" in done.stderr
    assert "Traceback" not in done.stderr
    assert forebay(server, "push", "words", "hello there", "--text").returncode == 0
    assert forebay(server, "pop", "words").stdout == '"hello there"\n'


def test_queues_and_groups_tell_what_waits(server: RunningServer) -> None:
    forebay(server, "push", "lagging", stdin="1\n2\n3\n")
    forebay(server, "pop", "lagging@slow")
    (queue,) = [q for q in json.loads(forebay(server, "queues", "-o", "json").stdout) if q["name"] == "lagging"]
    assert (queue["messages"]["total"], queue["messages"]["pending"]) == (3, 2)
    (group,) = [g for g in json.loads(forebay(server, "groups", "-o", "json").stdout) if g["name"] == "slow"]
    assert group["totalLag"] == 2
    shown = forebay(server, "queues")
    assert re.search(r"lagging .* for ever", shown.stdout)
    assert "set completedRetentionSeconds" in shown.stderr
    assert "slow" in forebay(server, "groups").stdout


def test_dead_letters_are_listed_replayed_and_purged(server: RunningServer) -> None:
    forebay(server, "push", "fragile", "1")
    for _ in range(2):
        (message,) = json.loads(forebay(server, "pop", "fragile", "--no-ack", "-o", "json").stdout)
        answer = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        body = json.dumps({**answer, "status": "dlq", "error": "too fragile"})
        subprocess.run(
            ["curl", "-sf", "-X", "POST", f"{server.url}/api/v1/ack", "-d", body], check=True, capture_output=True
        )
        listed = forebay(server, "dlq", "list", "--queue", "fragile")
        assert "too fragile" in listed.stdout
        assert "1 of 1 dead letters" in listed.stdout
        refused = forebay(server, "dlq", "replay")
        assert refused.returncode == 1
        assert "--all" in refused.stderr
        assert forebay(server, "dlq", "replay", "--queue", "fragile").stdout == (
            "replayed 1, each for the group in which it died\n"
        )
    assert forebay(server, "dlq", "purge", "--all").stdout == "purged 0\n"


def test_a_server_that_is_not_there_is_named(server: RunningServer) -> None:
    command = [sys.executable, "-m", "forebay", "queues", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
