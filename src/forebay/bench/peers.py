"""What Forebay's log is measured against, each used as its own documentation says."""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from forebay.bench.harness import rate
from forebay.errors import Permanent


class _Closing:
    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None: ...


class RawFile(_Closing):
    """The ceiling: the same payloads to the same disk, without format, index or checksum."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = 0

    def append(self, payloads: Sequence[bytes]) -> None:
        self._position += os.pwritev(self._fd, payloads, self._position)
        os.fdatasync(self._fd)

    def commit(self, payloads: list[bytes]) -> list[None]:
        self.append(payloads)
        return [None] * len(payloads)

    def close(self) -> None:
        os.close(self._fd)


class SqliteTable(_Closing):
    """A table in write-ahead mode that syncs every commit, as a careful user of SQLite would set it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, payload BLOB NOT NULL)")

    def append(self, payloads: Sequence[bytes]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO messages (payload) VALUES (?)", [(value,) for value in payloads])
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def persist_queues(directory: Path) -> Iterator[tuple[str, Any]]:
    """persist-queue's durable queues; they are the ones that a Python user finds first."""
    try:
        persistqueue = importlib.import_module("persistqueue")
    except ImportError:
        raise Permanent(
            "persist-queue is not installed, and it is what the log is measured against",
            remedy="Run `pip install 'forebay[bench]'`",
        ) from None
    yield "persist-queue, file", persistqueue.Queue(str(directory / "persist-file"))
    yield "persist-queue, SQLite", persistqueue.SQLiteQueue(str(directory / "persist-sqlite"), auto_commit=True)


def putter(queue: Any, payloads: Sequence[bytes], count: int) -> Callable[[], float]:
    def put() -> None:
        for index in range(count):
            queue.put(payloads[index % len(payloads)])

    return lambda: rate(count, put)
