"""One child process of `forebay up` or `forebay demo`: a thread reads its lines, and it does not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from forebay.cli import output
from forebay.cli.orphans import PARENT, end_session

STOP_SECONDS_MAX = 60.0
STEADY_SECONDS = 300.0
"""A part that has run this long is well: earlier ends do not count any more."""

# The kernel sends the part SIGTERM when its parent dies; what follows is described in `orphans`. The parent may have
# died before that was arranged, which the comparison finds. Its own session keeps the terminal's Ctrl-C from it: `up`
# stops it.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.getppid() == int(sys.argv[1]) or sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def show(name: str, line: str) -> None:
    """Print a line of a part under its name."""
    output.say(f"{name} | {line}")
    output.finish()


class Part:
    """`on_line` is called with the part's name and each line that it prints, in a thread of its own."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        on_line: Callable[[str, str], None] = show,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self._on_line = on_line
        self._environ = environ
        self.ready_line = ""
        self._ready = ""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._failures = 0
        self._began = 0.0
        self._is_cleared = False

    @property
    def is_ready(self) -> bool:
        return bool(self.ready_line)

    def start(self, ready: str) -> None:
        """Start it; a line that begins with `ready` says that it is."""
        self._ready = ready
        self._launch()

    def start_again(self) -> None:
        self._launch()

    def ended(self) -> int | None:
        """Its exit code, once it has ended; signals as the shell tells them."""
        code = None if self._process is None else self._process.poll()
        if self._process is not None and code is not None and not self._is_cleared:
            # At once, while its number cannot belong to another process yet. What is left are Spark's Python processes,
            # which may wait for a server for long.
            self._is_cleared = True
            end_session(self._process.pid)
        return 128 - code if code is not None and code < 0 else code

    def failures_now(self) -> int:
        """How often it has ended in a row, before this time."""
        is_steady = time.monotonic() - self._began >= STEADY_SECONDS
        self._failures = 0 if is_steady else self._failures + 1
        return max(self._failures - 1, 0)

    def stop(self) -> int:
        """Tell it to stop, and wait; returns its exit code, 0 if it never ran."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            output.tell(f"forebay: the {self.name} did not stop within {STOP_SECONDS_MAX:g} s and was killed")
            self._process.kill()
            self._process.wait()
        self.ended()
        if self._reader is not None:
            self._reader.join()
        return self.ended() or 0

    def hang_up(self) -> None:
        """SIGHUP: it is to read its files again."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """SIGKILL: nothing of it gets to clean up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _launch(self) -> None:
        self._began = time.monotonic()
        self._is_cleared = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(os.getpid()), *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**(os.environ if self._environ is None else self._environ), PARENT: str(os.getpid())},
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        self._reader = threading.Thread(
            target=self._show, args=(self._process,), name=f"{self.name}-lines", daemon=True
        )
        self._reader.start()

    def _show(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if line.startswith(self._ready) and not self.ready_line:
                self.ready_line = line.rstrip("\n")
            self._on_line(self.name, line.rstrip())
