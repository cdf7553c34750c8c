"""Backup and restore of both stores, by the commands of the guide: what was answered before the backup is in it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

from forebay.client import Client
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.binaries import postgres_binaries

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"


def command(program: str, verb: str, **places: str) -> list[str]:
    """The command of the page that begins with these words, with the places of this test."""
    (line,) = re.findall(rf"^{program} {verb}.*$", PAGE.read_text(), re.MULTILINE)
    for name, place in places.items():
        written = {"lib": "/var/lib", "backup": "/backup", "url": "$FOREBAY_SERVER_STORE"}[name]
        assert written in line
        line = line.replace(written, place)
    return shlex.split(line)


def audited(server: RunningServer) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "audit", "--url", server.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def fill(url: str) -> None:
    """Ten messages; three of them finished, and a dead letter."""
    with Client(url) as client:
        client.configure("orders", {"retryLimit": 0, "retryDelay": 0})
        client.push_many("orders", list(range(10)))
        assert client.ack(client.pop("orders@billing", batch=3))
        assert client.ack(client.pop("orders@billing"), "failed", error="broken")


def assert_restored(url: str, later: int = 0) -> None:
    with Client(url) as client:
        (queue,) = client.queues()
        assert queue["messages"]["total"] >= 10 + later
        assert [letter["errorMessage"] for letter in client.dead_letters()] == ["broken"]
        left = client.pop("orders@billing", batch=100)
        assert [message.data for message in left[:6]] == [4, 5, 6, 7, 8, 9]
        assert client.ack(left)
        client.push("orders", "after")
        found = client.pop("orders@billing", batch=1000)
        assert (found[-1].data, found[-1].seq > 10) == ("after", True)
        assert client.ack(found)


def test_directory_of_a_stopped_server_is_copied_and_put_back(tmp_path: Path) -> None:
    lib, backup = tmp_path / "lib", tmp_path / "backup"
    lib.mkdir()
    backup.mkdir()
    with RunningServer(lib / "forebay") as server:
        fill(server.url)
    subprocess.run(command("tar", "-C /var/lib -cf", lib=str(lib), backup=str(backup)), check=True)
    restored = tmp_path / "restored"
    restored.mkdir()
    subprocess.run(command("tar", "-C /var/lib -xf", lib=str(restored), backup=str(backup)), check=True)
    with RunningServer(restored / "forebay") as server:
        assert_restored(server.url)
        audited(server)


def test_a_snapshot_of_a_directory_at_work_holds_all_that_was_answered_before_it(tmp_path: Path) -> None:
    """A stopped process is what a snapshot of the file system sees: every file as it was at one moment."""
    ended = threading.Event()
    answered = 0
    with RunningServer(tmp_path / "data") as server:
        fill(server.url)

        def push() -> None:
            nonlocal answered
            with Client(server.url) as client:
                while not ended.is_set():
                    client.push("orders", "busy")
                    answered += 1

        pushing = threading.Thread(target=push)
        pushing.start()
        try:
            while answered < 50 and pushing.is_alive():
                ended.wait(0.01)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                before = answered
                subprocess.run(["cp", "-a", str(tmp_path / "data"), str(tmp_path / "snapshot")], check=True)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        finally:
            ended.set()
            pushing.join(30)
    assert before >= 50
    with RunningServer(tmp_path / "snapshot") as server:
        assert_restored(server.url, later=before)
        audited(server)


def test_database_is_dumped_beside_its_servers_and_put_back(postgres_database: str, tmp_path: Path) -> None:
    tools = postgres_binaries()[0].bin
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run(words: list[str]) -> None:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr

    with RunningServer(tmp_path / "data", store=postgres_database) as server:
        fill(server.url)
        run(command("pg_dump", "--format", backup=str(tmp_path), url=postgres_database))
        with Client(server.url) as client:
            client.push("orders", "after the backup")
    copy = f"{urlsplit(postgres_database).path[1:]}_restored"
    url = urlsplit(postgres_database)._replace(path=f"/{copy}").geturl()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(copy)))
        try:
            run(command("pg_restore", "--no-owner", backup=str(tmp_path), url=url))
            with RunningServer(tmp_path / "other", store=url) as server:
                assert_restored(server.url)
                audited(server)
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(copy)))
