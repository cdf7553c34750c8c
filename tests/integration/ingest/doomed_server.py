"""`forebay`, killed with SIGKILL at a named point: `python doomed_server.py POINT COUNT ARMED serve …`.

The process kills itself when it passes the point for the COUNT-th time while there is a file ARMED: so it can recover
what another one left, before its own time comes. Chunks are small here, so that a drain of a
few hundred events passes every point. Points of failed files need a queue that refuses: the first armed drain is
refused.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from forebay import assemble
from forebay.errors import QueueFull
from forebay.filesystem import File, RealFilesystem
from forebay.ingest import buffer_directory, failed_directory
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.drain_loop import DrainLoop
from forebay.ingest.drainer import Drainer
from forebay.ingest.failed_directory import FailedDirectory
from forebay.ingest.positions import Positions

CHUNK_EVENTS = 40
REFUSED_PUSHES = 2
"""The first of the whole chunk, and the one that finds out which queue it is."""

ACTIVE = "failover.buf"
PROCESSING = "failover_processing.buf"
ACTIVE_QOS0 = "qos0.buf"
PROCESSING_QOS0 = "qos0_processing.buf"


class Point(NamedTuple):
    owner: type | ModuleType
    method: str
    is_after: bool
    concerns: Callable[..., bool] = lambda *given, **options: True
    """Gets the arguments of the call, without `self`."""
    prepares: Callable[..., None] = lambda *given, **options: None
    """Done before the kill, with the same arguments."""


def half_a_write(file: File, data: bytes, start: int, path: Path) -> None:
    file.write_at([data[: len(data) // 2 + 3]], start)


def is_active(file: File, data: bytes, start: int, path: Path) -> bool:
    return path.name == ACTIVE


def is_failed(file: File, data: bytes, start: int, path: Path) -> bool:
    return path.parent.name == "failed"


def is_failover(kind: BufferKind, *more: object, **options: object) -> bool:
    return kind is BufferKind.FAILOVER


def is_processing_file(path: Path) -> bool:
    return path.name == PROCESSING


def is_failed_file(path: Path) -> bool:
    return path.parent.name == "failed" and path.suffix == ".buf"


def is_rotation(source: Path, target: Path) -> bool:
    return source.name == ACTIVE


def is_note(source: Path, target: Path) -> bool:
    return target.suffix == ".pos"


def is_active_qos0(file: File, data: bytes, start: int, path: Path) -> bool:
    return path.name == ACTIVE_QOS0


def is_processing_qos0(path: Path) -> bool:
    return path.name == PROCESSING_QOS0


def is_rotation_of_qos0(source: Path, target: Path) -> bool:
    return source.name == ACTIVE_QOS0


BEFORE, AFTER = False, True

POINTS = {
    "append-file-made": Point(BufferDirectory, "_opened_to_append", AFTER, lambda path, **_: path.name == ACTIVE),
    "append-before-write": Point(buffer_directory, "write_or_take_back", BEFORE, is_active),
    "append-half-written": Point(buffer_directory, "write_or_take_back", BEFORE, is_active, half_a_write),
    "append-before-sync": Point(buffer_directory, "write_or_take_back", AFTER, is_active),
    "append-before-answer": Point(BufferDirectory, "append", AFTER, is_failover),
    "qos0-half-written": Point(buffer_directory, "write_or_take_back", BEFORE, is_active_qos0, half_a_write),
    "qos0-before-answer": Point(buffer_directory, "write_or_take_back", AFTER, is_active_qos0),
    "qos0-before-rename": Point(RealFilesystem, "replace", BEFORE, is_rotation_of_qos0),
    "qos0-before-note": Point(DrainLoop, "_push_chunk", AFTER),
    "qos0-before-remove": Point(BufferDirectory, "remove", BEFORE, is_processing_qos0),
    "rotate-before-rename": Point(RealFilesystem, "replace", BEFORE, is_rotation),
    "rotate-before-directory-sync": Point(RealFilesystem, "replace", AFTER, is_rotation),
    "rotate-done": Point(BufferDirectory, "rotate", AFTER, is_failover),
    "drain-before-push": Point(Drainer, "_store", BEFORE),
    "drain-before-note": Point(DrainLoop, "_push_chunk", AFTER),
    "drain-note-half-made": Point(RealFilesystem, "replace", BEFORE, is_note),
    "drain-noted": Point(Positions, "note", AFTER),
    "delete-before-remove": Point(BufferDirectory, "remove", BEFORE, is_processing_file),
    "delete-before-directory-sync": Point(RealFilesystem, "remove", AFTER, is_processing_file),
    "delete-done": Point(BufferDirectory, "remove", AFTER, is_processing_file),
    "failed-before-write": Point(failed_directory, "write_or_take_back", BEFORE, is_failed),
    "failed-half-written": Point(failed_directory, "write_or_take_back", BEFORE, is_failed, half_a_write),
    "failed-before-sync": Point(failed_directory, "write_or_take_back", AFTER, is_failed),
    "failed-before-note": Point(FailedDirectory, "append", AFTER),
    "failed-stored-before-note": Point(Drainer, "_store_again", AFTER),
    "failed-before-remove": Point(BufferDirectory, "remove", BEFORE, is_failed_file),
    "failed-before-directory-sync": Point(RealFilesystem, "remove", AFTER, is_failed_file),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def arm(point: Point, count: int, armed: Path) -> None:
    original = getattr(point.owner, point.method)
    own_arguments = slice(0 if isinstance(point.owner, ModuleType) else 1, None)
    left = count

    def pass_by(given: tuple[Any, ...], options: dict[str, Any]) -> None:
        nonlocal left
        if armed.exists() and point.concerns(*given, **options):
            left -= 1
            if left == 0:
                point.prepares(*given, **options)
                die()

    def wrapped(*given: Any, **options: Any) -> Any:
        if not point.is_after:
            pass_by(given[own_arguments], options)
        result = original(*given, **options)
        if point.is_after:
            pass_by(given[own_arguments], options)
        return result

    async def wrapped_async(*given: Any, **options: Any) -> Any:
        if not point.is_after:
            pass_by(given[own_arguments], options)
        result = await original(*given, **options)
        if point.is_after:
            pass_by(given[own_arguments], options)
        return result

    is_async = inspect.iscoroutinefunction(original)
    setattr(point.owner, point.method, functools.wraps(original)(wrapped_async if is_async else wrapped))


def refuse_first_drains(armed: Path) -> None:
    original = DrainLoop._push_chunk
    left = REFUSED_PUSHES

    async def push_chunk(self: DrainLoop, items: Any) -> Any:
        nonlocal left
        if armed.exists() and left:
            left -= 1
            raise QueueFull(items[0].queue, 0, 0)
        return await original(self, items)

    setattr(DrainLoop, "_push_chunk", push_chunk)  # noqa: B010 -- a method, as mypy sees it, is not to be assigned


def main() -> None:
    name, count, armed, *words = sys.argv[1:]
    buffer_limits = assemble.buffer_limits
    assemble.buffer_limits = lambda settings: buffer_limits(settings)._replace(chunk_events=CHUNK_EVENTS)
    if name.startswith("failed-"):
        refuse_first_drains(Path(armed))
    arm(POINTS[name], int(count), Path(armed))
    sys.argv = ["forebay", *words]
    from forebay.cli import main as forebay

    forebay()


if __name__ == "__main__":
    main()
