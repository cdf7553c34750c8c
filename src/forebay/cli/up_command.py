"""`forebay up`: server and worker as child processes, looked after until one Ctrl-C stops both.

Each line that a part prints is shown with the part's name before it. The worker starts when the server is ready. A
part that ends before it was ready once ends everything with its exit code: settings are wrong, or the port is taken,
and starting again would not help. One that ends later is started again after a pause that doubles from 1 s to 60 s.
Ctrl-C and SIGTERM stop the worker first, then the server; the exit code is 0 if both ended cleanly. When `up` itself
is killed, the parts and all their processes are gone within 5 s: see `orphans`. SIGHUP goes to the server, which reads
keys, certificate and log level again.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from forebay.cli import output
from forebay.cli.flow_session import refuse_early
from forebay.cli.output import ExitCode
from forebay.cli.part import Part
from forebay.cli.settings_flags import with_settings
from forebay.cli.worker_command import READY as WORKER_READY
from forebay.config.load import Loaded
from forebay.flows.supervision import pause_seconds

SERVER_READY = "forebay: serving "
LOOK_SECONDS = 0.2
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Listen without API keys on an address that others can reach.")
]


@with_settings
def up(loaded: Loaded, insecure: InsecureOption = False) -> None:
    """Serve queues and run the flows of a settings file, until SIGTERM or Ctrl-C."""
    refuse_early(loaded)
    settings = settings_words(loaded)
    code = _Household(settings, insecure).run()
    if code != ExitCode.DONE:
        raise typer.Exit(code)


def settings_words(loaded: Loaded) -> list[str]:
    """The settings in effect as flags, so that the parts see what this process saw, whatever layer it came from."""
    words = ["--config", str(loaded.file)] if loaded.file is not None else []
    values = loaded.values()
    for name, origin in loaded.origins.items():
        if origin.layer != "flag":
            continue
        flag = name.replace(".", "-").replace("_", "-")
        value = values[name]
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words


class _Household:
    """The two parts and what is to be done about them."""

    def __init__(self, settings: Sequence[str], is_insecure: bool) -> None:
        forebay = [sys.executable, "-m", "forebay"]
        self._server = Part("server", [*forebay, "serve", *settings, *(["--insecure"] if is_insecure else [])])
        self._worker = Part("worker", [*forebay, "worker", *settings])
        self._stopping = threading.Event()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        signal.signal(signal.SIGHUP, lambda *_: self._server.hang_up())
        try:
            code = self._run()
        finally:
            ends = [part.stop() for part in (self._worker, self._server)]
        return code or next((end for end in ends if end), int(ExitCode.DONE))

    def _run(self) -> int:
        for part, ready in ((self._server, SERVER_READY), (self._worker, WORKER_READY)):
            if part is self._worker:
                part.command += ["--url", self._server.ready_line.removeprefix(SERVER_READY).split(" ", 1)[0]]
            part.start(ready)
            while not part.is_ready:
                if self._stopping.wait(LOOK_SECONDS):
                    return int(ExitCode.DONE)
                if (code := part.ended()) is not None:
                    return code or int(ExitCode.REFUSED)
        while not self._stopping.wait(LOOK_SECONDS):
            for part in (self._server, self._worker):
                self._keep(part)
        return int(ExitCode.DONE)

    def _keep(self, part: Part) -> None:
        """Start a part again that has ended, when its pause is over."""
        code = part.ended()
        if code is None:
            return
        pause = pause_seconds(part.failures_now() + 1, random.random())
        output.tell(f"forebay: the {part.name} ended with {code}; again in {pause:.1f} s")
        if not self._stopping.wait(pause):
            part.start_again()
