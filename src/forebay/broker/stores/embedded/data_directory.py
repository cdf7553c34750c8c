"""Where an embedded store keeps what: for the store itself, and for tools that look at a directory from outside."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from forebay.broker.stores.embedded.queries import query
from forebay.commitlog.layout import QUEUES

DATABASE_FILE = "store.sqlite"


def is_data_directory(directory: Path) -> bool:
    return os.path.isfile(directory / DATABASE_FILE)  # noqa: PTH113 -- no, too, where it may not be looked


def queue_logs(directory: Path) -> dict[str, Path]:
    """The directory of each queue's log, by the queue's name. Works beside a server that has the store open."""
    with closing(read_only(directory / DATABASE_FILE)) as database:
        rows = database.execute(query("queue_names")).fetchall()
    return {name: directory / QUEUES / str(number) for name, number in rows}


def read_only(database: Path) -> sqlite3.Connection:
    """A connection that can only read, beside whatever has the database open; for one thread at a time."""
    uri = f"{database.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
