"""A Valkey server of one's own.

It keeps nothing by default, as a cache does: the warm tier must be able to lose it. With `appendonly` it
writes its log.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping, Sequence
from typing import ClassVar

from forebay.testing.servers.binaries import ValkeyBinary, valkey_binaries
from forebay.testing.servers.launcher import LocalServer

_PROBE_SECONDS_MAX = 2


class ValkeyServer(LocalServer):
    """Valkey with an empty data set. `stop` takes "graceful" (the default) or "kill"."""

    name = "valkey"
    stop_signals: ClassVar[Mapping[str, signal.Signals]] = {
        "graceful": signal.SIGTERM,
        "kill": signal.SIGKILL,
    }
    close_mode = "kill"

    def __init__(
        self,
        *,
        appendonly: bool = False,
        binary: ValkeyBinary | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = binary or valkey_binaries()[0]
        super().__init__()
        self._settings = {
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            **(settings or {}),
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.directory),
            "daemonize": "no",
        }

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        options = [option for name, value in self._settings.items() for option in (f"--{name}", value)]
        return [str(self.binary.path), *options]

    def _answers(self) -> bool:
        # By hand, because a client library would be a dependency for one line of protocol. While Valkey reads
        # its log it answers -LOADING.
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_PROBE_SECONDS_MAX) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
