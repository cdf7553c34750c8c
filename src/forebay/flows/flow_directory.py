"""A flow's directory, `<data_dir>/flows/<name>/`: how it stands, what people want of it, and its checkpoints.

| file | written by | what it holds |
|---|---|---|
| `state.json` | the worker, about once a second | `FlowReport`: state, cause, rows, lag |
| `wish.json` | `forebay flows pause`, `resume` | whether it is to be paused; the worker looks once a second |
| `lock` | the worker | locked while the flow runs: a second worker on the same directory is refused |
| `checkpoint/`, `errors-checkpoint/` | Spark | how far the flow and the search for its bad records have come |

Files are replaced whole, so a reader never sees half of one. None of them is needed for correctness but the
checkpoints: without `state.json` and `wish.json` a flow starts as if it were new to the worker.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from forebay.errors import Permanent
from forebay.flows.definition import Flow
from forebay.flows.supervision import State, Wish

PATIENCE_SECONDS = 0.2
"""How long a lock is waited for: whoever only looks whether a flow runs holds it for a moment."""

T = TypeVar("T")


class FlowRunsElsewhere(Permanent):
    """Another process runs this flow on the same data directory. Two would do everything twice."""


class FlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a flow, as `forebay flows list` shows it."""

    name: str
    state: State
    cause: str = ""
    """Why it failed or is being restarted."""
    since: str = ""
    """When this state began, RFC 3339."""
    updated: str = ""
    restarts: int = 0
    batch: int | None = None
    rows: int = 0
    """Messages read since the worker started."""
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    """How long the last batch took."""
    lag: int | None = None
    """Messages in the queue that the flow has not read, as Spark saw it last."""
    bad_rows: int = 0
    """Bad records set aside since the worker started."""
    pid: int = 0


def _lock(descriptor: int, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(PATIENCE_SECONDS / 10)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


class FlowDirectory:
    """One flow's files."""

    def __init__(self, data_dir: Path, name: str) -> None:
        self.path = data_dir / "flows" / name

    def checkpoint(self, flow: Flow) -> str:
        return flow.checkpoint or str((self.path / "checkpoint").absolute())

    def errors_checkpoint(self, flow: Flow) -> str:
        own = str((self.path / "errors-checkpoint").absolute())
        return f"{flow.checkpoint.rstrip('/')}-errors" if flow.checkpoint else own

    def report(self) -> FlowReport | None:
        """What the worker wrote last; None if it wrote nothing yet. A worker that is gone leaves a stopped flow."""
        found = self._read("state.json", FlowReport)
        if found is None or found.state is State.FAILED or self.is_locked():
            return found
        if found.state in (State.STARTING, State.RESTARTING) and _is_alive(found.pid):
            return found  # between two tries its worker does not hold it
        return msgspec.structs.replace(found, state=State.STOPPED)

    def save_report(self, report: FlowReport) -> None:
        self._write("state.json", report)

    def wish(self) -> Wish:
        return self._read("wish.json", Wish) or Wish()

    def pause(self) -> None:
        self._write("wish.json", Wish(is_paused=True, resumes=self.wish().resumes))

    def resume(self) -> None:
        self._write("wish.json", Wish(is_paused=False, resumes=self.wish().resumes + 1))

    def is_locked(self) -> bool:
        """Whether a process runs the flow now."""
        try:
            with self.locked(patience_seconds=0):
                return False
        except FlowRunsElsewhere:
            return True

    @contextmanager
    def locked(self, *, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
        """Hold the flow's lock. It ends with the process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                _lock(descriptor, patience_seconds)
            except BlockingIOError as taken:
                raise FlowRunsElsewhere(
                    f"flow {self.path.name!r} runs in another process ({self.path})",
                    remedy="Stop that one, or give this one another data directory",
                ) from taken
            yield
        finally:
            os.close(descriptor)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, name: str, value: object) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f"{name}.{os.getpid()}"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
        new.replace(self.path / name)
