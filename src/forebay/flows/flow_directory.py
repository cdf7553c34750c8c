"""A flow's directory, `<data_dir>/flows/<name>/`: its lock, its checkpoints, and the records that it leaves out.

| file | written by | what it holds |
|---|---|---|
| `set-aside.json` | the worker | records on which an action fails, left out of the batch under way |
| `lock` | the worker | locked while the flow runs: a second worker on the same directory is refused |
| `checkpoint/`, `errors-checkpoint/` | Spark | how far the flow and the search for its bad records have come |

Files are replaced whole, so a reader never sees half of one. None of them is needed for correctness but the
checkpoints: without `set-aside.json` the records are searched for again. How the flow stands, and what people want of
it, the servers know (`flow_report`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from forebay.errors import Permanent
from forebay.flows.definition import Flow
from forebay.flows.supervision import Wish

PATIENCE_SECONDS = 0.2
"""How long a lock is waited for: that of a process which is just ending is free in a moment."""

T = TypeVar("T")


class FlowRunsElsewhere(Permanent):
    """Another process runs this flow on the same data directory. Two would do everything twice."""


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A record on which an action fails; the flow goes on without it."""

    seq: int
    action: str
    """The name of the action, or `sink`."""
    cause: str
    traceback: str = ""
    is_queued: bool = True
    """Whether it goes to the error queue, or is skipped."""
    is_reported: bool = msgspec.field(default=False, name="is_told")
    """Whether it is in the error queue, or the log. Until then it is reported again at the next start."""


class SetAsides(msgspec.Struct, frozen=True, kw_only=True):
    """The records of the batch under way that the flow leaves out."""

    query: str = ""
    """The query whose checkpoint they belong to: another one begins without any."""
    records: tuple[SetAside, ...] = ()


def _lock(descriptor: int, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(PATIENCE_SECONDS / 10)


class FlowDirectory:
    """One flow's files."""

    def __init__(self, data_dir: Path, name: str) -> None:
        self.path = data_dir / "flows" / name

    def checkpoint(self, flow: Flow) -> str:
        return flow.checkpoint or str((self.path / "checkpoint").absolute())

    def errors_checkpoint(self, flow: Flow) -> str:
        own = str((self.path / "errors-checkpoint").absolute())
        return f"{flow.checkpoint.rstrip('/')}-errors" if flow.checkpoint else own

    def set_asides(self) -> SetAsides:
        return self._read("set-aside.json", SetAsides) or SetAsides()

    def save_set_asides(self, found: SetAsides) -> None:
        self._write("set-aside.json", found)

    def take_old_pause(self) -> bool:
        """Whether an older Forebay, which kept that here, was ordered to pause the flow. Read once: then it is gone."""
        found = self._read("wish.json", Wish)
        with suppress(OSError):
            (self.path / "wish.json").unlink()
        return found is not None and found.is_paused

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the flow's lock. It ends with the process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                _lock(descriptor, PATIENCE_SECONDS)
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
