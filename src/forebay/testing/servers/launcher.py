"""Starting, probing, hurting and ending one server process: what PostgreSQL and Valkey have in common.

The faults are the point. A test that says "the database was killed in the middle of a push" must be able to
do that to a server of its own, at once, and to start the same server again on the same port with the same
data.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self, cast

from forebay.testing.servers.binaries import Account, ServerUnavailable
from forebay.testing.servers.machine import descendants, free_port, is_running, make_directory

_KEEPER = Path(__file__).with_name("keeper.py")
_PROBE_SECONDS = 0.01
_LOG_LINES_SHOWN = 30


class LocalServer(ABC):
    """One server process with a directory and a port of its own. Use it as a context manager."""

    name: ClassVar[str]
    # The signal for each way of stopping; the first is the default.
    stop_signals: ClassVar[Mapping[str, signal.Signals]]
    # The quickest of them that leaves nothing behind in the kernel.
    close_mode: ClassVar[str]

    start_seconds_max: ClassVar[float] = 60
    stop_seconds_max: ClassVar[float] = 60

    def __init__(self, account: Account | None = None) -> None:
        self._account = account
        self._keeper: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self.port = free_port()
        self.directory = make_directory(f"forebay-{self.name}-", account)
        self.log_path = self.directory / "server.log"

    @property
    @abstractmethod
    def url(self) -> str:
        """The address to connect to. It stays the same when the server is stopped and started again."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The server's command line, for a process that stays in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Ask the server for something small. False while it does not answer yet."""

    @property
    def pid(self) -> int:
        if self._pid is None:
            raise ServerUnavailable(f"{self.name} is not running")
        return self._pid

    def start(self) -> None:
        """Start the server and return when it answers."""
        if self._keeper is not None:
            raise ServerUnavailable(f"{self.name} was started already, as process {self._pid}")
        self._keeper, self._pid = self._launch(self._command())
        deadline = time.monotonic() + self.start_seconds_max
        while not self._answers():
            if self._keeper.poll() is not None:
                code = self._keeper.returncode
                self._forget()
                raise ServerUnavailable(f"{self.name} ended with code {code} instead of starting\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerUnavailable(
                    f"{self.name} did not answer within {self.start_seconds_max:g} s\n{self.log_tail()}"
                )
            time.sleep(_PROBE_SECONDS)

    def stop(self, mode: str | None = None) -> None:
        """Stop the server in one of the ways of `stop_signals` and return when all its processes are gone."""
        signal_number = self.stop_signals[mode or next(iter(self.stop_signals))]
        keeper = self._running_keeper()
        self.resume()
        self._signal([self.pid], signal_number)
        try:
            keeper.wait(self.stop_seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"{self.name} did not stop within {self.stop_seconds_max:g} s of {signal_number.name}"
            raise ServerUnavailable(f"{message}; it was killed\n{self.log_tail()}") from None
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as when memory runs out. Returns when all processes of the server are gone."""
        keeper = self._running_keeper()
        self._signal([self.pid], signal.SIGKILL)
        keeper.wait(self.stop_seconds_max)
        self._forget()

    def pause(self) -> None:
        """Freeze all its processes: connections stay open and nothing answers, as on a hung machine."""
        self._running_keeper()
        # The first process first, so that it starts no further one while the others are being stopped. A signal
        # is delivered later than it is sent: a process on another core may run on for a moment, and answer.
        self._freeze([self.pid])
        self._freeze(descendants(self.pid))

    def resume(self) -> None:
        """Undo `pause`. Harmless when the server is not paused."""
        self._running_keeper()
        self._signal([*descendants(self.pid), self.pid], signal.SIGCONT)

    def restart(self, mode: str | None = None) -> None:
        """`stop`, then `start` with the same data on the same port."""
        self.stop(mode)
        self.start()

    @property
    def is_running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def close(self) -> None:
        """End the server if it runs and remove its directory. What it held is gone. May be called twice."""
        try:
            if self._keeper is not None:
                self.stop(self.close_mode)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        """The last lines of the server's own log."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join(lines[-_LOG_LINES_SHOWN:]) or "(its log is empty)"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self, command: Sequence[str]) -> tuple[subprocess.Popen[str], int]:
        uid, gid = (self._account.uid, self._account.gid) if self._account else (-1, -1)
        last_signal = self.stop_signals[self.close_mode]
        keeping = [str(self.log_path), str(self.directory), str(int(last_signal)), str(uid), str(gid)]
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), *keeping, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=self._environment(),
            start_new_session=True,
        )
        with cast(IO[str], keeper.stdout) as pid_line:
            answer = pid_line.readline().strip()
        if not answer.isdigit():
            _reap(keeper)
            raise ServerUnavailable(f"{command[0]} cannot be run: {answer.removeprefix('!') or 'the keeper died'}")
        return keeper, int(answer)

    def _run_to_end(self, command: Sequence[str], seconds_max: float) -> int:
        """Run a program that prepares the directory, kept like the server itself; return its exit code."""
        keeper, _ = self._launch(command)
        try:
            return keeper.wait(seconds_max)
        except subprocess.TimeoutExpired:
            message = f"{command[0]} did not end within {seconds_max:g} s"
            raise ServerUnavailable(f"{message}\n{self.log_tail()}") from None
        finally:
            _reap(keeper)

    def _environment(self) -> dict[str, str]:
        # Variables like PGPORT or PGDATA change what PostgreSQL's programs do, and a locale changes how text
        # sorts.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        return {**kept, "LC_ALL": "C", "TZ": "UTC"}

    def _running_keeper(self) -> subprocess.Popen[str]:
        if self._keeper is None:
            raise ServerUnavailable(f"{self.name} is not running")
        return self._keeper

    def _forget(self) -> None:
        if self._keeper is not None:
            _reap(self._keeper)
        self._keeper = self._pid = None

    def _freeze(self, pids: Sequence[int]) -> None:
        self._signal(pids, signal.SIGSTOP)
        while self.is_running and any(is_running(pid) for pid in pids):
            time.sleep(_PROBE_SECONDS)

    def _signal(self, pids: Sequence[int], number: signal.Signals) -> None:
        # Once the keeper is gone the server is too, and its id may belong to another process.
        for pid in pids if self.is_running else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _reap(keeper: subprocess.Popen[str]) -> None:
    if keeper.stdin is not None:
        keeper.stdin.close()
    keeper.wait()
