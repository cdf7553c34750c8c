"""One connection, many statements at a time: they go out together, and their answers come back together.

psycopg's own connections wait for each answer before the next statement leaves, and an event loop sits between the two.
Here a thread talks to libpq in its pipeline mode, so that a transaction of six statements takes two trips. The thread
waits in `poll` and nowhere else, with a deadline: a database that hangs cannot hang it.

A statement is prepared when it is first sent, and its plan is made once where `PLANNED_ONCE` is among the settings.

What an error means: `psycopg.Error` with what the database said, after which the connection can go on (`roll_back`).
`Unanswered` when it broke or time ran out: what was sent may have been done, and the connection is of no use.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import psycopg
from psycopg import abc, errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from forebay.broker.stores.postgres.arrays import on_the_wire
from forebay.broker.stores.postgres.attempts import Unanswered
from forebay.broker.stores.postgres.connections import CONNECTING, Row
from forebay.broker.stores.postgres.queries import Prepared, Statement, prepared

ROLL_BACK_SECONDS_MAX = 2.0
BEGIN, COMMIT, ROLLBACK = Statement(b"BEGIN", {}), Statement(b"COMMIT", {}), Statement(b"ROLLBACK", {})
DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class Packed(NamedTuple):
    """A statement with its values as they go over the wire."""

    statement: Prepared
    values: list[bytes | None]


def packed(statements: Sequence[Statement]) -> list[Packed]:
    """All of it before any is sent: a value that cannot be sent must not leave half an exchange behind."""
    return [
        Packed(known, [on_the_wire(statement.values[name]) for name in known.parameters])
        for statement in statements
        if (known := prepared(statement.text))
    ]


class Wire:
    """For one thread at a time. Deadlines are times of `time.monotonic`."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        self._connection = connected(url, settings)
        self._libpq = self._connection.pgconn
        self._libpq.enter_pipeline_mode()
        self._rows = Transformer(self._connection)
        self._prepared: set[bytes] = set()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._libpq.socket, select.POLLIN)
        self._writable.register(self._libpq.socket, select.POLLIN | select.POLLOUT)

    @property
    def is_usable(self) -> bool:
        return not self._connection.closed

    def close(self) -> None:
        self._connection.close()

    def exchange(self, statements: Sequence[Statement], deadline: float) -> list[list[Row]]:
        """Run the statements one after the other, up to the first that fails; returns the rows of each."""
        ready = packed(statements)
        return self._exchanged(lambda: self._send(ready), deadline)

    def given_away(self, texts: Sequence[bytes], deadline: float) -> psycopg.Connection[Row]:
        """The connection, in pipeline mode, for somebody who will send statements with these texts."""
        self._exchanged(lambda: self._send_prepared(texts), deadline)
        return self._connection

    def _exchanged(self, send: Callable[[], list[bytes | None]], deadline: float) -> list[list[Row]]:
        try:
            sent = send()
            while self._libpq.flush():
                self._wait(self._writable, deadline)
            results = self._results(deadline)
        except (psycopg.Error, OSError) as error:
            self.close()
            raise Unanswered(str(error)) from error
        return self._read(sent, results)

    def roll_back(self) -> None:
        """Leave a transaction that failed. A connection that cannot is closed."""
        if self.is_usable:
            try:
                self.exchange([ROLLBACK], time.monotonic() + ROLL_BACK_SECONDS_MAX)
            except (Unanswered, psycopg.Error):
                self.close()

    def _send(self, statements: Sequence[Packed]) -> list[bytes | None]:
        """Returns what answers are to come: the name of one that is prepared, None for one that is run."""
        sent: list[bytes | None] = []
        for (name, text, _), values in statements:
            if name not in self._prepared and name not in sent:
                self._libpq.send_prepare(name, text)
                sent.append(name)
            self._libpq.send_query_prepared(name, values, [Format.BINARY] * len(values), Format.BINARY)
            sent.append(None)
        self._libpq.pipeline_sync()
        return sent

    def _send_prepared(self, texts: Sequence[bytes]) -> list[bytes | None]:
        sent: list[bytes | None] = []
        for name, text, _ in map(prepared, texts):
            self._libpq.send_prepare(name, text)
            sent.append(name)
        self._libpq.pipeline_sync()
        return sent

    def _results(self, deadline: float) -> list[PGresult]:
        """What came, up to the end of the exchange or of the connection."""
        results: list[PGresult] = []
        while True:
            try:
                while self._libpq.is_busy():
                    self._wait(self._readable, deadline)
                result = self._libpq.get_result()
            except psycopg.OperationalError:
                result = None
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                return results
            if result is not None:
                results.append(result)
            elif self._libpq.status != ConnStatus.OK:
                self.close()
                return results

    def _wait(self, poll: select.poll, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("no answer in time")
        self._libpq.consume_input()

    def _read(self, sent: list[bytes | None], results: list[PGresult]) -> list[list[Row]]:
        answers: list[list[Row]] = []
        for name, result in zip(sent, results, strict=False):
            if result.status not in DONE:
                raise self._error(result, is_last=len(answers) == sent.count(None) - 1)
            if name is None:
                answers.append(rows_of(result, self._rows))
            else:
                self._prepared.add(name)
        if len(results) < len(sent):
            raise Unanswered("the connection broke")
        return answers

    def _error(self, result: PGresult, *, is_last: bool) -> Exception:
        """When the connection ended with the last statement, that may have been done before it ended."""
        has_state = result.error_field(DiagnosticField.SQLSTATE) is not None
        if not has_state or (is_last and ends_connection(result)):
            self.close()
            return Unanswered(result.get_error_message())
        return error_of(result)


def connected(url: str, settings: Mapping[str, str]) -> psycopg.Connection[Row]:
    """A connection of its own, for who talks to libpq himself."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return psycopg.connect(url, autocommit=True, options=options, **CONNECTING)


def rows_of(result: PGresult, reader: abc.Transformer) -> list[Row]:
    reader.set_pgresult(result, set_loaders=True, format=Format.BINARY)
    return cast("list[Row]", reader.load_rows(0, result.ntuples, tuple))


def ends_connection(result: PGresult) -> bool:
    """Whether an error is the last that will come of this connection."""
    return result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC")


def error_of(result: PGresult) -> psycopg.Error:
    """What the database said went wrong."""
    try:
        kind = errors.lookup((result.error_field(DiagnosticField.SQLSTATE) or b"").decode())
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(result.get_error_message())
