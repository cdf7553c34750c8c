"""A real `forebay serve` for tests: its own process, on a free port, gone when the test is.

    def test_my_pipeline(forebay_server: RunningServer) -> None:
        requests.post(f"{forebay_server.url}/api/v1/push", json=…)

The fixture comes with `pytest_plugins = ["forebay.testing.running_server"]`. Its data live in the test's `tmp_path`;
`RunningServer(...)` as a context manager takes other stores and settings.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
READY = "forebay: serving "
FOREBAY = (sys.executable, "-m", "forebay")


class ServerDidNotStart(Exception):
    """`forebay serve` ended, or said nothing in time. The message has what it printed."""


class RunningServer:
    """A server process. `url` is known once it is ready; a stopped one may be started again on the same data."""

    def __init__(
        self,
        data_dir: Path,
        *,
        store: str = "embedded",
        arguments: Sequence[str] = (),
        program: Sequence[str] = FOREBAY,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`program`: what runs `forebay`, for a test that puts something around it."""
        self.data_dir = data_dir
        self.store = store
        self.arguments = tuple(arguments)
        self.program = tuple(program)
        self.environment = dict(environment or {})
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start and wait until it is ready. Started again, it listens on the same port."""
        words = ["--host", "127.0.0.1", "--port", str(self._port), "--store", self.store]
        words += ["--data-dir", str(self.data_dir), *self.arguments]
        self._errors = (self.data_dir.parent / f"{self.data_dir.name}.stderr").open("ab")
        self._process = subprocess.Popen(
            [*self.program, "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
            | self.environment,
        )
        line = self._first_line(self._process)
        self.url = line.removeprefix(READY).split(" ", 1)[0]
        self._port = int(self.url.rpartition(":")[2])

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        if process.stdout is None:
            raise ServerDidNotStart("no pipe to its output")
        deadline = time.monotonic() + START_SECONDS_MAX
        text = b""
        while b"\n" not in text:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([process.stdout], [], [], max(left, 0))
            part = os.read(process.stdout.fileno(), 4096) if readable else b""
            if not part:
                process.kill()
                self._ended(process)
                raise ServerDidNotStart(f"forebay serve: {text.decode(errors='replace')}{self.errors()}")
            text += part
        return text.decode().splitlines()[0]

    def errors(self) -> str:
        """What it has printed on stderr so far."""
        return Path(self._errors.name).read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM, and wait for the clean end; returns the exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        return self._ended(process)

    def kill(self) -> None:
        """SIGKILL: nothing of it gets to clean up."""
        process = self._running()
        process.kill()
        self._ended(process)

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(STOP_SECONDS_MAX)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._errors.close()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerDidNotStart("the server is not running")
        return self._process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()


@pytest.fixture
def forebay_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A running server on an empty data directory of this test's own."""
    with RunningServer(tmp_path / "forebay-data") as server:
        yield server
