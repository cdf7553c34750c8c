"""SQLite as the embedded store uses it: one connection, one thread, transactions by hand."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.broker.stores.embedded.queries import FOLDER, query
from forebay.errors import Permanent
from forebay.filesystem import FILE_MODE

VERSION = 9
"""2: messages can be deleted one by one, and a Forebay that knows 1 would deliver them. 3: leases are kept in short.

4: records can be marked as lost, and a Forebay that knows 3 would look for them. 5: partitions can be removed, and a
Forebay that knows 4 would read what their records hold. From 5 on it is written down while the store is open, and not
only when it is closed, when groups last popped. 6: commits of stages are known by their queue too, and
readers that are no groups hold back retention. 7: dispatch's tables, and parcels hold back retention. 8: keys,
sessions and admin actions; a Forebay that knows 7 would serve without asking for keys. 9: parcels know the identity of
their queue; a Forebay that knows 8 could not read them. From 7 on, each format is a numbered file in
`broker/sql/embedded`.
"""
Values = Sequence[object] | Mapping[str, object]
"""Of a statement: in order for `?`, by name for `:name`, which a value that stands twice has."""
_LAST_UNNUMBERED = 6
_CACHE_KIB = 65_536


def numbered_format(number: int) -> str:
    """The script that makes a database of one format one of the next, as a whole."""
    [file] = [file for file in FOLDER.iterdir() if file.name.startswith(f"{number:04}_")]
    return f"BEGIN IMMEDIATE;\n{file.read_text()}\nPRAGMA user_version={number};\nCOMMIT;"


class CommitFailed(Exception):
    """SQLite did not confirm a commit. What it wrote may be found after a kill, until another commit overwrites it."""


class Database:
    """Statements are cached by sqlite3 itself; rows are plain tuples."""

    def __init__(self, path: Path) -> None:
        # SQLite gives its other files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        self._is_due = False
        """Whether a transaction waits for its first statement."""
        self._is_synced = False
        self._changes_undone = 0
        self.has_committed = False
        """Whether the last transaction wrote anything; many have nothing to write."""
        try:
            self._set_up(path)
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self, path: Path) -> None:
        run = self._connection.execute
        found = self._refuse_newer(path)
        run("PRAGMA journal_mode=WAL")
        # A commit is handed to the kernel and not synced: it survives the process. Commits that must survive the
        # power as well are made inside `synced`.
        run("PRAGMA synchronous=NORMAL")
        run(f"PRAGMA cache_size=-{_CACHE_KIB}")
        run("PRAGMA temp_store=MEMORY")
        run("PRAGMA wal_autocheckpoint=4000")
        self._migrate()
        for number in range(max(found, _LAST_UNNUMBERED) + 1, VERSION + 1):
            self._connection.executescript(numbered_format(number))

    def _refuse_newer(self, path: Path) -> int:
        """Before anything is changed in it. Returns its format; 0 for a new one."""
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        if found > VERSION:
            raise Permanent(
                f"{path}: written by a newer Forebay (format {found}, this one knows {VERSION})",
                remedy="Open it with the Forebay that wrote it",
            )
        return int(found)

    def _migrate(self) -> None:
        schema = query("tables")
        self._connection.executescript(schema)
        self._add_column("states", "has_pending", 1)
        if self._add_column("queues", "gone_pushed", 0):
            # What an older Forebay wrote down of it may be from when a group was made: none may be taken for idle.
            now_us = time.time_ns() // 1_000
            self._connection.execute(query("groups_touch_all"), (now_us,))
        if self._add_column("queues", "gone_seq", 0):
            self._connection.execute(query("gone_seqs_take_over"))
        self._add_column("stages", "checksum", 0)
        self._add_column("stages", '"write"', "''", kind="TEXT")
        self._take_over_commits()

    def _add_column(self, table: str, column: str, default: int | str, kind: str = "INTEGER") -> bool:
        """Add it to a table that an older Forebay has made; returns whether it did."""
        if column.strip('"') in {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}:
            return False
        self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind} NOT NULL DEFAULT {default}")
        return True

    def _take_over_commits(self) -> None:
        """Those of a Forebay of format 5, in one transaction: killed before its end, it is done again."""
        known = query("commits_of_format_5_find")
        if self._connection.execute(known).fetchone():
            taking = query("commits_of_format_5")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(taking)
            self._connection.execute(query("commits_of_format_5_drop"))
            self._connection.execute("COMMIT")

    def execute(self, statement: str, values: Any) -> sqlite3.Cursor:
        """A statement with values of any kind, within the transaction."""
        return self._begun().execute(statement, values)

    def one(self, statement: str, values: Values = ()) -> Any:
        """The first row, or None."""
        return self._begun().execute(statement, values).fetchone()

    def all(self, statement: str, values: Values = ()) -> list[Any]:
        return self._begun().execute(statement, values).fetchall()

    def do(self, statement: str, values: Values = ()) -> int:
        """Change something; returns how many rows it changed."""
        return self._begun().execute(statement, values).rowcount

    def insert(self, statement: str, values: Values) -> int:
        """Insert one row; returns its id."""
        return int(self._begun().execute(statement, values).lastrowid or 0)

    def many(self, statement: str, rows: Iterable[Values]) -> int:
        """The same for each row; returns how many rows all of it changed."""
        return self._begun().executemany(statement, rows).rowcount

    @contextmanager
    def transaction(self, *, synced: bool) -> Iterator[None]:
        """All of it, or nothing when the block raises. `synced`: on the disk when it is done.

        It begins with its first statement. Most pushes have none, and each would cost the interpreter's lock twice.
        """
        self._is_due, self._is_synced = True, synced
        self.has_committed = False
        try:
            yield
            if self._connection.in_transaction:
                self._commit()
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            if synced and not self._is_due:
                self._connection.execute("PRAGMA synchronous=NORMAL")
            self._is_due = False

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise CommitFailed(str(error)) from error
        self.has_committed = True

    @property
    def changes(self) -> int:
        """A number that grows with every row that is changed and not changed back by the end of a savepoint."""
        return self._connection.total_changes - self._changes_undone

    def _begun(self) -> sqlite3.Connection:
        if self._is_due:
            self._is_due = False
            if self._is_synced:
                self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction that can fail by itself."""
        self._begun().execute("SAVEPOINT part")
        before = self.changes
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO part")
            self._connection.execute("RELEASE part")
            self._changes_undone += self.changes - before
            raise
        self._connection.execute("RELEASE part")

    def close(self) -> None:
        self._connection.close()
