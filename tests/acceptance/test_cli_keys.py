"""`forebay keys` as a process: on a fresh directory, at a running server, and on a database beside its servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

QUEUES = "/api/v1/resources/queues"
STALE_SECONDS_MAX = 2.0


def made(*words: str, key: str = "") -> str:
    """The text of a new key: all that is on stdout."""
    done = typed("keys", "create", *words, key=key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("forebay_")
    assert done.stdout.strip() not in done.stderr
    return done.stdout.strip()


def status(server: RunningServer, key: str) -> int:
    with Http(server.url) as http:
        return http.send("GET", QUEUES, None, {"X-API-Key": key}).status


def test_first_key_is_made_on_a_fresh_directory_and_counts_when_a_server_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = made("root", "--scope", "admin", "--data-dir", str(data))
    loader = made(
        "loader", "--scopes", "write,read", "--queues", "orders.*", "--expires", "30d", "--data-dir", str(data)
    )
    kept = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert key.encode() not in kept
    listed = json.loads(typed("keys", "list", "--data-dir", str(data), "-o", "json").stdout)
    assert [(one["name"], one["scopes"], one["queues"], one["state"]) for one in listed] == [
        ("root", ["admin"], [], "active"),
        ("loader", ["read", "write"], ["orders.*"], "active"),
    ]
    with RunningServer(data) as server:
        assert [status(server, one) for one in ("", "wrong", key, loader)] == [401, 401, 200, 200]
        body = {"items": [{"queue": "bills", "payload": 1}]}
        with Http(server.url) as http:
            assert http.send("POST", "/api/v1/push", body, {"X-API-Key": loader}).status == 403
        refused = typed("keys", "list", "--data-dir", str(data))
        assert refused.returncode == 1
        assert f"process {server.pid}" in refused.stderr
        assert "--url" in refused.stderr


def test_keys_of_a_running_server_are_made_rotated_and_revoked_over_http(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        where = ["--url", server.url]
        refused = typed("keys", "create", "first", "--scope", "read", *where)
        assert refused.returncode == 1
        assert "first key has to be admin" in refused.stderr
        root = made("root", "--scope", "admin", *where)
        assert status(server, "") == 401
        assert "a key is needed" in typed("keys", "list", *where).stderr
        reader = made("reader", "--scope", "read", *where, key=root)
        rotated = typed("keys", "rotate", "reader", "--grace", "0", *where, key=root)
        fresh = rotated.stdout.strip()
        assert [status(server, one) for one in (root, reader, fresh)] == [200, 401, 200]
        assert "403" not in rotated.stderr
        denied = typed("keys", "list", *where, key=fresh)
        assert denied.returncode == 1
        assert "this needs admin" in denied.stderr
        assert typed("keys", "revoke", "reader", *where, key=root).stdout == "revoked reader\n"
        assert status(server, fresh) == 401
        last = typed("keys", "revoke", "root", *where, key=root)
        assert last.returncode == 1
        assert "last admin key" in last.stderr
        table = typed("keys", "list", "--revoked", *where, key=root).stdout
        assert [line.split()[1] for line in table.splitlines()[2:]] == ["root", "reader"]
        assert "revoked" in table


def test_change_counts_within_two_seconds_on_every_server_of_a_database(postgres_database: str, tmp_path: Path) -> None:
    root = made("root", "--scope", "admin", "--store", postgres_database)
    words = ["--buffer-store-timeout", "60s"]
    with (
        RunningServer(tmp_path / "one", store=postgres_database, arguments=words) as one,
        RunningServer(tmp_path / "two", store=postgres_database, arguments=words) as two,
    ):
        assert [status(server, root) for server in (one, two)] == [200, 200]
        with Http(one.url) as http:
            headers = {"X-API-Key": root}
            told = http.send("POST", "/api/v1/keys", {"name": "reader", "scopes": ["read"]}, headers).json
            _within(lambda: status(two, told["key"]) == 200)
            session = http.send("POST", "/api/v1/session", {"key": told["key"]}).headers["set-cookie"].split(";")[0]
            assert _status_of_session(two, session) == 200
            assert http.send("DELETE", f"/api/v1/keys/{told['info']['id']}", None, headers).status == 200
        assert _status_of_session(one, session) == 401
        _within(lambda: status(two, told["key"]) == 401)
        _within(lambda: _status_of_session(two, session) == 401)
        typed("keys", "create", "beside", "--scope", "admin", "--store", postgres_database)
        beside = made("beside too", "--scope", "read", "--store", postgres_database)
        for server in (one, two):
            _within(lambda server=server: status(server, beside) == 200)


def _status_of_session(server: RunningServer, cookie: str) -> int:
    with Http(server.url) as http:
        return http.send("GET", QUEUES, None, {"Cookie": cookie}).status


def _within(is_true: Any) -> None:
    """In time; on a machine that is busy with other tests, twice as much."""
    began = time.monotonic()
    wait_until(is_true)
    assert time.monotonic() - began < 2 * STALE_SECONDS_MAX


def test_server_that_others_can_reach_starts_with_keys_of_the_store_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    serve = ["serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(data)]
    for _ in range(2):
        refused = typed(*serve)
        assert refused.returncode == 1
        assert "there are no API keys" in refused.stderr
        assert "Traceback" not in refused.stderr
        typed("keys", "list", "--data-dir", str(data))  # the directory is there now, and has no keys
    key = made("root", "--scope", "admin", "--data-dir", str(data))
    command = [sys.executable, "-m", "forebay", *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split("serving ")[1].split(" ")[0].replace("0.0.0.0", "127.0.0.1")
        with Http(url) as http:
            assert http.get(QUEUES).status == 401
            assert http.send("GET", QUEUES, None, {"X-API-Key": key}).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "removed 1 keys" in typed("keys", "disable", "--data-dir", str(data)).stdout
    assert typed(*serve).returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "x", "--scope", "root", "--data-dir", "d"], "'root' is none of read, write, consume, admin"),
        (["create", "x", "--scope", "admin", "--expires", "soon", "--data-dir", "d"], "--expires 'soon'"),
        (["rotate", "nowhere", "--data-dir", "d"], "no key 'nowhere'"),
        (["revoke", "nowhere", "--data-dir", "d"], "no key 'nowhere'"),
        (["disable"], "no store was named"),
    ],
)
def test_wrong_words_are_refused_with_what_helps(words: list[str], said: str, tmp_path: Path) -> None:
    done = typed("keys", *[str(tmp_path / "d") if word == "d" else word for word in words])
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_of_a_running_server_are_changed_without_loading_a_server() -> None:
    program = "import sys, forebay.cli.keys_command; print('forebay.assemble' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_key_stands_in_front_of_the_words_about_it_where_both_go_to_one_file(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "forebay",
        "keys",
        "create",
        "root",
        "--scope",
        "admin",
        "--data-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60)
    assert [line.partition(" ")[0][:8] for line in done.stdout.splitlines()[:2]] == ["forebay_", "key"]
