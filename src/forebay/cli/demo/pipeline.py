"""Server and worker of the demo: real `forebay serve` and `forebay worker`, with what they print in files."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from string import Template

from forebay.cli.demo.clicks import USERS_HEADER, users
from forebay.cli.part import Part
from forebay.cli.up_command import SERVER_READY
from forebay.cli.worker_command import READY as WORKER_READY
from forebay.errors import ForebayError
from forebay.flows.supervision import State
from forebay.testing.servers.machine import free_port

PARQUET = "per-minute"
ACTIONS = "demo_actions.py"
SPARK_PROPERTIES = "spark.properties"
# Compile once and quickly: a Java that lives for two minutes does not earn back what the second compiler costs.
SHORT_LIVED_JAVA = "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
SERVER_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
LOG_LINES_SHOWN = 20


class DemoFailed(ForebayError):
    """Server, worker or a flow ended before the demo did. The message has the last lines of its log."""


class Pipeline:
    """Use it as `with Pipeline(directory, destination) as …`; at the end both processes are stopped."""

    def __init__(self, directory: Path, destination: str) -> None:
        """`destination`: the URL to which results go."""
        self.directory = directory
        self._destination = destination
        self._receiver_port = free_port()
        self.data_dir = directory / "forebay-data"
        self.url = ""
        self.worker_starts = 0
        """How often a worker has said that it is ready."""
        self._failed_flow = ""
        """What the worker says of a flow that has failed."""
        # Settings of the user's own environment would make another demo of it.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        forebay = [sys.executable, "-m", "forebay"]
        data = ["--config", str(directory / "forebay.yaml"), "--data-dir", str(self.data_dir)]
        self._server = Part(
            "server",
            [*forebay, "serve", "--host", "127.0.0.1", *data, "--port", "0"],
            on_line=self._log,
            environ=environ,
        )
        self._worker = Part(
            "worker",
            [*forebay, "worker", *data, "--url"],
            on_line=self._log,
            environ=environ,
        )

    def __enter__(self) -> Pipeline:
        self.directory.mkdir(parents=True, exist_ok=True)
        package = resources.files("forebay.cli.demo")
        settings = Template(package.joinpath("forebay.yaml").read_text())
        values = {
            "receiver_port": str(self._receiver_port),
            "destination": self._destination,
            "spark_properties": str(self.directory / SPARK_PROPERTIES),
        }
        (self.directory / "forebay.yaml").write_text(settings.substitute(values))
        (self.directory / SPARK_PROPERTIES).write_text(SHORT_LIVED_JAVA)
        (self.directory / ACTIONS).write_text(package.joinpath(ACTIONS).read_text())
        table = "".join(f"{user},{region}\n" for user, region in users().items())
        (self.directory / "users.csv").write_text(USERS_HEADER + table)
        return self

    def __exit__(self, *_: object) -> None:
        # The worker first, so that its last batch does not meet a server that is gone.
        for part in (self._worker, self._server):
            part.stop()

    async def start_server(self) -> None:
        self._server.start(SERVER_READY)
        await self.until(lambda: self._server.is_ready, SERVER_SECONDS_MAX, "the server to start")
        self.url = self._server.ready_line.removeprefix(SERVER_READY).split(" ", 1)[0]
        # Started again, it has to be where its clients look for it.
        self._server.command[-1] = self.url.rpartition(":")[2]

    def kill_server(self) -> None:
        """Kill it with -9 and start it again on the same data, without waiting for it."""
        self._server.kill()
        self._server.start_again()

    @property
    def receiver_url(self) -> str:
        """Where OTLP metrics go."""
        return f"http://127.0.0.1:{self._receiver_port}/v1/metrics"

    def start_worker(self) -> None:
        self._worker.command.append(self.url)
        self._worker.start(WORKER_READY)

    def kill_worker(self) -> None:
        """Kill it with -9, and all that it has started, and start another one, without waiting for it."""
        self._worker.kill()
        self._worker.ended()
        self._worker.start_again()

    @property
    def is_spark_ready(self) -> bool:
        return self._worker.is_ready

    async def until(self, is_so: Callable[[], bool], seconds_max: float, what: str) -> None:
        deadline = time.monotonic() + seconds_max
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {seconds_max:g} s for {what}")
            await asyncio.sleep(LOOK_SECONDS)

    def check(self) -> None:
        """Raise DemoFailed if a process or a flow has ended."""
        for part in (self._server, self._worker):
            if (code := part.ended()) is not None:
                raise DemoFailed(f"the {part.name} ended with {code}:\n{self._last_lines(part)}")
        if self._failed_flow:
            raise DemoFailed(f"flow {self._failed_flow}")

    def _log(self, name: str, line: str) -> None:
        if name == "worker" and line.partition(": ")[2].startswith(f"{State.FAILED}: "):
            self._failed_flow = line
        self.worker_starts += name == "worker" and line.startswith(WORKER_READY)
        with (self.directory / f"{name}.log").open("a") as log:
            log.write(line + "\n")

    def _last_lines(self, part: Part) -> str:
        part.stop()
        try:
            lines = (self.directory / f"{part.name}.log").read_text().splitlines()
        except FileNotFoundError:
            return "  it said nothing"
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES_SHOWN:])
