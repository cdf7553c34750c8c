"""`forebay up` with one flow, and the CPU time of all its processes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence

from forebay.bench.broker.servers import ForebayServer
from forebay.testing.servers.machine import descendants

_SCHEDULED = 2
"""Which of a process's clocks: the time that it ran, user's and system's."""
_LOOK_SECONDS = 0.5


class UpProcess(ForebayServer):
    """Server and worker. It answers when the server does; the worker is ready later, and its first batch later still.

    It is stopped as a user stops it, so that the worker ends its Java.
    """

    name = "up"
    close_mode = "graceful"

    def __init__(self, flows: str) -> None:
        super().__init__()
        self._settings = self.directory / "forebay.yaml"
        self._settings.write_text(flows)

    def _command(self) -> Sequence[str]:
        where = ["--server-host", "127.0.0.1", "--server-port", str(self.port), "--data-dir", str(self.data)]
        return [sys.executable, "-m", "forebay", "up", "--config", str(self._settings), *where]

    def cores_used(self, seconds: float) -> float:
        """CPU time of all its processes per second, in cores, over so many seconds.

        Spark's Python processes come and go, and what an ended one has used is not added up: so all are looked at now
        and again, and what one used after the last look at it is lost.
        """
        began = time.perf_counter()
        first = self._cpu_seconds()
        latest = dict(first)
        while (left := began + seconds - time.perf_counter()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            latest |= self._cpu_seconds()
        used = sum(seconds_used - first.get(pid, 0) for pid, seconds_used in latest.items())
        return used / (time.perf_counter() - began)

    def _cpu_seconds(self) -> dict[int, float]:
        """What each process has used so far."""
        found = {}
        for pid in [self.pid, *descendants(self.pid)]:
            with contextlib.suppress(OSError):
                # The clock of another process, as clock_getcpuclockid numbers it. What /proc counts in steps of 10 ms
                # may be nothing at all in a second of doing nothing.
                found[pid] = time.clock_gettime((~pid << 3) | _SCHEDULED)
        return found
