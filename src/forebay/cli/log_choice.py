"""Which logs a `forebay log` command is about: one by its directory, one by its queue's name, or all of a store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from forebay.broker.stores.embedded.data_directory import is_data_directory, queue_logs
from forebay.errors import Permanent, UnknownQueue

LogArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR|QUEUE",
        help="A log's directory (where manifest.current is), a data directory, or with --data-dir a queue's name.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="A store's data directory: the log of QUEUE, or of every queue."),
]


class ChosenLog(NamedTuple):
    queue: str | None
    """Its queue's name, where the log was chosen through a store."""
    directory: Path

    def __str__(self) -> str:
        return str(self.directory) if self.queue is None else f"queue {self.queue!r} ({self.directory})"


def chosen_logs(log: str | None, data_dir: Path | None) -> list[ChosenLog]:
    if data_dir is None and log is None:
        raise typer.BadParameter("name a log's directory, or a store's with --data-dir")
    if data_dir is None and not is_data_directory(Path(log or "")):
        return [ChosenLog(None, Path(log or ""))]
    directory = data_dir if data_dir is not None else Path(log or "")
    if not is_data_directory(directory):
        raise Permanent(f"{directory}: no data directory of an embedded store is here")
    try:
        found = queue_logs(directory)
    except sqlite3.Error as error:
        remedy = f"Name the directories in {directory}/queues one by one"
        raise Permanent(f"{directory}: the names of its queues cannot be read: {error}", remedy=remedy) from error
    if data_dir is None or log is None:
        return [ChosenLog(name, path) for name, path in found.items()]
    if log not in found:
        raise UnknownQueue(log)
    return [ChosenLog(log, found[log])]
