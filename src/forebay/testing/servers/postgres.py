"""A PostgreSQL server of one's own.

Tuned to start fast and stay small, but not at the price of durability, which is what Forebay's tests are
about: `fsync` and `synchronous_commit` stay on, so a commit that was answered is on disk, and so is what it
costs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from forebay.testing.servers.binaries import (
    PostgresBinaries,
    ServerUnavailable,
    postgres_binaries,
    readable_for,
    unprivileged_account,
)
from forebay.testing.servers.launcher import LocalServer

_USER = "forebay"
_INITDB_SECONDS_MAX = 120
_PROBE_SECONDS_MAX = 2
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "30min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Over TCP only: a socket's path may be no longer than 107 bytes, and temporary directories are sometimes
    # deep.
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}


class PostgresServer(LocalServer):
    """PostgreSQL with an empty database cluster. `stop` takes "fast" (the default), "immediate" or "kill"."""

    name = "postgres"
    stop_signals: ClassVar[Mapping[str, signal.Signals]] = {
        "fast": signal.SIGINT,
        "immediate": signal.SIGQUIT,
        "kill": signal.SIGKILL,
    }
    # A killed PostgreSQL leaves a shared memory segment, and the kernel has room for 4,096 of them.
    close_mode = "immediate"

    def __init__(self, *, binaries: PostgresBinaries | None = None, settings: Mapping[str, str] | None = None) -> None:
        chosen = binaries or postgres_binaries()[0]
        super().__init__(unprivileged_account())
        self._settings = {**_SETTINGS, **(settings or {})}
        self._data = self.directory / "data"
        self.binaries = readable_for(self._account, chosen, self.directory)

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, database: str) -> str:
        """The address of one database of this server."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        if not self._data.exists():
            self._make_cluster()
        super().start()

    def _make_cluster(self) -> None:
        # Not synced: the empty cluster need not survive a power cut.
        command = [
            str(self.binaries.bin / "initdb"),
            *("-D", str(self._data), "-U", _USER, "-E", "UTF8", "--locale=C", "--auth=trust"),
            *("--no-sync", "--no-instructions"),
        ]
        code = self._run_to_end(command, _INITDB_SECONDS_MAX)
        if code != 0:
            raise ServerUnavailable(f"initdb ended with code {code}\n{self.log_tail()}")

    def _command(self) -> Sequence[str]:
        settings = {"port": str(self.port), **self._settings}
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return [str(self.binaries.bin / "postgres"), "-D", str(self._data), *options]

    def _answers(self) -> bool:
        # Imported where it is used: a test that starts only Valkey does not need it.
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=_PROBE_SECONDS_MAX) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        # Another PostgreSQL on our port would answer too.
        return row is not None and os.fspath(self._data) == row[0]
