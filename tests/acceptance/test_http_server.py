"""`forebay serve` as a process: how it starts, whom it lets in, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

import pytest

from fixtures.certificates import make_certificate
from fixtures.running_stores import STORES, Http, fresh, running, shared_postgres_database
from forebay.api.access import new_key
from forebay.testing.running_server import RunningServer, ServerDidNotStart

__all__ = ["shared_postgres_database"]


def serve(*words: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    command = [sys.executable, "-m", "forebay", "serve", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", store="memory://") as running_server:
        yield running_server


@pytest.mark.parametrize("store", [store for store in STORES if store != "asgi"])
def test_stop_ends_long_polls_with_204_and_the_process_with_0(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = running(store, request, tmp_path)
    server.start()
    http, consumer = Http(server.url), Http(server.url)
    with ThreadPoolExecutor() as pool:
        path = f"/api/v1/pop/queue/{fresh()}?wait=true&timeout=600000"
        waiting = pool.submit(consumer.get, path)
        deadline = time.monotonic() + 30
        while http.get("/api/v1/status").json["waitingConsumers"] != 1:
            assert time.monotonic() < deadline
        assert server.stop() == 0
        assert waiting.result(30).status == 204
    http.close()
    consumer.close()


@pytest.mark.parametrize("store", [store for store in STORES if store != "asgi"])
def test_what_was_answered_is_there_after_kill_9(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    queue = fresh()
    server = running(store, request, tmp_path)
    with server:
        accepted: list[str] = []
        stop = threading.Event()

        def produce(number: int) -> None:
            with Http(server.url) as http:
                while not stop.is_set():
                    try:
                        answers = http.push(queue, number, number, partition=f"p{number}")
                    except (OSError, HTTPException):  # the server was killed under it
                        return
                    accepted.extend(entry["transactionId"] for entry in answers)

        with ThreadPoolExecutor() as pool:
            producers = [pool.submit(produce, number) for number in range(4)]
            deadline = time.monotonic() + 30
            while len(accepted) < 200 and time.monotonic() < deadline:
                os.sched_yield()
            server.kill()
            stop.set()
            for producer in producers:
                producer.result(30)
        server.start()
        http = Http(server.url)
        kept: set[str] = set()
        while messages := http.pop(queue, batch=1000, partitions=10, autoAck="true"):
            kept.update(message["transactionId"] for message in messages)
        http.close()
        assert len(accepted) >= 200
        assert set(accepted) <= kept


def test_ready_line_says_where_and_what(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        assert server.url.startswith("http://127.0.0.1:")
        http = Http(server.url)
        assert http.get("/readyz").json == {"status": "ready", "reasons": []}
        assert "embedded" in http.get("/api/v1/status").json["store"]
        http.close()


def test_occupied_port_is_refused_by_name_of_its_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = serve("--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert ended.returncode == 1
    assert f"127.0.0.1:{port} is taken by" in ended.stderr
    assert f"(process {os.getpid()})" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_second_server_on_a_data_directory_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as first:
        ended = serve("--port", "0", "--data-dir", str(tmp_path / "data"))
        assert ended.returncode == 1
        assert str(first.pid) in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "server.port"),
        (["--port", "many"], "server.port"),
        (["--store", "mysql://x"], "server.store"),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "::"], "--insecure"),
        (["--host", "no.such.host.invalid", "--insecure"], "cannot listen"),
        (["--server-keys", "/no/such/file"], "/no/such/file"),
        (["--server-certificate", "/no/such/file"], "/no/such/file"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(words: list[str], said: str, tmp_path: Path) -> None:
    arguments = words if "--port" in words else [*words, "--port", "0"]
    ended = serve(*arguments, "--data-dir", str(tmp_path / "data"))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_insecure_server_listens_everywhere_when_told_to(tmp_path: Path) -> None:
    words = ["--server-host", "0.0.0.0", "--insecure"]
    command = [sys.executable, "-m", "forebay", "serve", "--port", "0", "--store", "memory://", *words]
    with subprocess.Popen([*command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("forebay: serving http://0.0.0.0:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def keys_file(folder: Path) -> tuple[Path, dict[str, str]]:
    keys, listed = {}, []
    for scope in ("read", "write", "admin"):
        keys[scope], digest = new_key()
        listed.append({"name": f"the {scope} key", "sha256": digest, "scope": scope})
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": listed}))
    return path, keys


def test_key_opens_what_its_scope_allows_and_no_more(tmp_path: Path) -> None:
    path, keys = keys_file(tmp_path)
    operations: dict[str, tuple[str, str, object]] = {
        "read": ("GET", "/api/v1/resources/queues", None),
        "write": ("POST", "/api/v1/push", {"items": []}),
        "admin": ("POST", "/api/v1/system/maintenance", {"enabled": False}),
    }
    with RunningServer(tmp_path / "data", store="memory://", arguments=["--server-keys", str(path)]) as server:
        http = Http(server.url)
        assert http.get("/healthz").status == 200
        for needed, (method, where, body) in operations.items():
            without = http.send(method, where, body)
            assert (without.status, without.headers["www-authenticate"]) == (401, "Bearer")
            assert http.send(method, where, body, {"X-API-Key": "guess"}).status == 401
            for place, (scope, key) in enumerate(keys.items()):
                allowed = place >= list(operations).index(needed)
                for header in ({"Authorization": f"Bearer {key}"}, {"X-API-Key": key}):
                    status = http.send(method, where, body, header).status
                    assert (status < 300) is allowed, f"{needed} with the {scope} key: {status}"
                    assert allowed or status == 403
        http.close()


def test_key_of_a_producer_makes_queues_and_does_not_change_or_delete_them(tmp_path: Path) -> None:
    path, keys = keys_file(tmp_path)
    options = {"retentionSeconds": 3600, "leaseTime": 60}
    made = {"queue": "orders", "namespace": "shop", "options": options}
    with RunningServer(tmp_path / "data", store="memory://", arguments=["--server-keys", str(path)]) as server:
        http = Http(server.url)
        write, admin = ({"X-API-Key": keys[scope]} for scope in ("write", "admin"))
        assert http.send("POST", "/api/v1/configure", made, write).status == 200
        assert http.send("POST", "/api/v1/configure", made, write).status == 200
        changes: list[dict[str, object]] = [
            {**made, "options": {**options, "retentionSeconds": 1}},
            {**made, "options": {}},
            {**made, "namespace": "other"},
            {**made, "task": "other"},
        ]
        for change in changes:
            assert http.send("POST", "/api/v1/configure", change, write).status == 403
        shown = http.send("GET", "/api/v1/resources/queues/orders", None, write).json
        assert (shown["config"]["retentionSeconds"], shown["namespace"]) == (3600, "shop")
        assert http.send("DELETE", "/api/v1/resources/queues/orders", None, write).status == 403
        for change in changes:
            assert http.send("POST", "/api/v1/configure", change, admin).status == 200
        assert http.send("DELETE", "/api/v1/resources/queues/orders", None, admin).status == 200
        http.close()


def test_digest_of_a_key_that_the_user_made_by_other_means_opens(tmp_path: Path) -> None:
    """The file's format is a promise: SHA-256 of the key as hexadecimal digits, and nothing else."""
    digest = subprocess.run(["sha256sum"], input=b"my own key", capture_output=True, check=True).stdout.split()[0]
    path = tmp_path / "keys.yaml"
    path.write_text(f"keys:\n  - name: own\n    sha256: {digest.decode()}\n    scope: read\n")
    with RunningServer(tmp_path / "data", store="memory://", arguments=["--server-keys", str(path)]) as server:
        http = Http(server.url)
        where = "/api/v1/resources/queues"
        assert http.send("GET", where, None, {"X-API-Key": "my own key"}).status == 200
        assert http.send("GET", where, None, {"X-API-Key": digest.decode()}).status == 401
        assert http.send("GET", where, None, {"X-API-Key": "my own key "}).status == 200
        assert http.send("GET", where, None, {"X-API-Key": "my own kez"}).status == 401
        http.close()
    printed = Path(f"{tmp_path}/data.stderr").read_text()
    assert "my own ke" not in printed


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"keys": []}', '{"keys": [{"name": "a", "sha256": "12", "scope": "read"}]}', "keys: [", "\0"],
)
def test_file_of_keys_that_cannot_be_read_stops_the_start(text: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ServerDidNotStart, match=r"keys\.yaml"):
        RunningServer(tmp_path / "data", store="memory://", arguments=["--server-keys", str(path)]).start()


def test_certificate_makes_it_https(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    words = ["--server-certificate", str(certificate), "--server-certificate-key", str(key)]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=str(certificate))
        connection = HTTPSConnection("127.0.0.1", int(server.url.rpartition(":")[2]), context=trust, timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        plain = Http(server.url.replace("https", "http"))
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on who closes first
            plain.get("/healthz")
        plain.close()


def test_server_answers_on_while_a_large_body_arrives(server: RunningServer) -> None:
    http = Http(server.url)
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as slow:
        slow.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b" " * 1000)
        assert http.get("/healthz").status == 200
    assert http.get("/healthz").status == 200
    http.close()
