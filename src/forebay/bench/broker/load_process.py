"""A process that drives one system through its client, for as many rounds as are requested.

It stays alive between rounds, so that connections are warm and no round pays for imports. It speaks lines of JSON: the
first on stdin names the system (`{"system", "url", "lanes"}`), every further one a load with its arguments; each is
answered by one line, `{"value"}` or `{"error", "remedy"}`. At the end of stdin it ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Any

from forebay.errors import ForebayError, Permanent


class LoadDied(Permanent):
    """A load process ended or failed. The message has what it said last."""


class LoadProcess:
    """The near end. Use it as a context manager; `rate` and its kin run one round."""

    def __init__(self, system: str, url: str, *, lanes: int) -> None:
        self._first = {"system": system, "url": url, "lanes": lanes}

    def __enter__(self) -> LoadProcess:
        command = [sys.executable, "-m", __name__]
        # In a session of its own, so that Ctrl-C reaches this process alone, which ends the other.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            self._ask(self._first)
        except BaseException:
            self._process.kill()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._end()

    def run(self, load: str, **arguments: object) -> float:
        """One round of one of `loads.LOADS`; returns its figure."""
        return float(self._ask({"load": load, **arguments}))

    def _ask(self, question: dict[str, object]) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise LoadDied("no pipes to the load process")
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LoadDied(f"the load process for {self._first['system']} ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise LoadDied(f"{self._first['system']}: {answer['error']}", remedy=answer["remedy"])
        return answer["value"]

    def _end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


async def _main() -> None:
    from forebay.bench.broker.loads import LOADS
    from forebay.bench.broker.systems import system_named

    first = json.loads(sys.stdin.readline())
    system = system_named(first["system"])

    async def answered(line: str) -> dict[str, object]:
        question = json.loads(line)
        system.place = question.pop("place", system.place)
        return {"value": await LOADS[question.pop("load")](system, **question)}

    try:
        await system.open(first["url"], first["lanes"])
        _tell({"value": 0})
        # Read in a thread: the clients have to answer their servers' heartbeats between rounds too.
        while line := await asyncio.to_thread(sys.stdin.readline):
            _tell(await answered(line))
        await system.close()
    except ForebayError as error:
        _tell({"error": error.message, "remedy": error.remedy})
    except Exception as error:  # noqa: BLE001 -- whatever it is, the near end tells it
        traceback.print_exc()
        _tell({"error": f"{type(error).__name__}: {error}", "remedy": None})


def _tell(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
