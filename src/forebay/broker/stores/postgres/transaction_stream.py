"""Transactions one behind the other on one connection, and an event loop that never waits for them.

psycopg's own connections wait for each answer before the next statement leaves. Here libpq's pipeline mode is used
directly: statements leave with `send`, and when their answers have come, the loop calls back. The next transaction is
sent without waiting for the last one, so that the database always has something to do, and the loop reads requests
meanwhile. A statement is prepared when it is first sent, in the same trip, and its plan is made once where
`PLANNED_ONCE` is among the connection's settings.

A transaction has neither BEGIN nor COMMIT. What is sent up to a synchronisation point is one transaction, which the
database commits when it gets there, or rolls back as a whole when a statement fails. So it takes a single trip, and its
locks are not held while a program makes a decision. What must not be committed has to fail, or to write nothing.

**What is known of a transaction when its connection breaks**

| what came of it                                        | it was      | its `then` gets        |
|--------------------------------------------------------|-------------|------------------------|
| all answers, and the word that it is committed         | done        | its rows               |
| an error in place of an answer                         | rolled back | that error             |
| not all answers, and the database's farewell (FATAL)   | not done    | that error             |
| all answers, no word of the commit                     | unknown     | `CommitUnknown`        |
| silence: the connection broke, or time was up          | unknown     | `CommitUnknown`        |

The database sends what it has to say in order. So a farewell in place of an answer says that the statement was not
done, and nothing behind it either.

The caller that opens the connection lets the database itself end a statement that takes too long (`statement_timeout`),
and then it is known what became of it. Silence is what is left: `seconds_max` counts from when a transaction was the
next to be answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import psycopg
from psycopg import abc, errors
from psycopg.adapt import Transformer
from psycopg.errors import Diagnostic
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from forebay.broker.stores.postgres.arrays import on_the_wire
from forebay.broker.stores.postgres.attempts import CommitUnknown
from forebay.broker.stores.postgres.connections import Connection, Row
from forebay.broker.stores.postgres.queries import Prepared, Statement, prepared

Then = Callable[[list[list[Row]] | Exception], None]
"""Called once, by the loop, with the rows of each statement or with what became of them instead. Never raises."""
DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class Packed(NamedTuple):
    """A statement with its values as they go over the wire."""

    statement: Prepared
    values: list[bytes | None]


def packed(statements: Sequence[Statement]) -> list[Packed]:
    """All of it before any is sent: a value that cannot be sent must not leave half a transaction behind."""
    return [
        Packed(known, [on_the_wire(statement.values[name]) for name in known.parameters])
        for statement in statements
        if (known := prepared(statement.text))
    ]


class _Sent:
    __slots__ = ("results", "sent", "then")

    def __init__(self, sent: Sequence[bytes | None], then: Then) -> None:
        self.sent = sent
        """What results are to come: the name of a statement that is prepared, None for one that is run."""
        self.then = then
        self.results: list[PGresult] = []


class TransactionStream:
    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, *, seconds_max: float) -> None:
        self._connection = connection
        self._loop = loop
        self._seconds_max = seconds_max
        self._libpq = connection.pgconn
        self._libpq.enter_pipeline_mode()
        self._prepared: set[bytes] = set()
        """Names of statements that the database knows, or will when it gets there."""
        self._socket = self._libpq.socket
        self._rows = Transformer(connection)
        self._sent: deque[_Sent] = deque()
        self._turn_began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._is_open = True
        """Ours to say: psycopg calls a connection closed as soon as libpq finds that it broke."""
        self._is_leaving = False
        """Whether the database has said farewell while nothing was under way: libpq takes that for a notice."""
        connection.add_notice_handler(self._hear)
        loop.add_reader(self._socket, self._readable)

    def is_alive(self) -> bool:
        """Asks the connection, if nothing is under way: an end that came meanwhile is better seen before a send."""
        if self._is_open and not self._sent:
            self._readable()
        return self._is_open

    def send(self, statements: Sequence[Packed], then: Then) -> None:
        """Let a transaction leave. When the connection breaks at that, `then` is called before this returns."""
        sent: list[bytes | None] = []
        self._sent.append(_Sent(sent, then))
        if len(self._sent) == 1:
            self._begin_turn()
        try:
            for (name, text, _), values in statements:
                if name not in self._prepared:
                    self._libpq.send_prepare(name, text)
                    self._prepared.add(name)
                    sent.append(name)
                self._libpq.send_query_prepared(name, values, [Format.BINARY] * len(values), Format.BINARY)
                sent.append(None)
            self._libpq.pipeline_sync()
            self._flush()
        except (psycopg.Error, OSError) as error:
            self._break(error)

    def close(self) -> None:
        """What is under way is not waited for, and stays unknown."""
        self._break(ConnectionError("the connection was closed"))

    def _flush(self) -> None:
        is_more = bool(self._libpq.flush())
        if is_more != self._is_flushing:
            self._is_flushing = is_more
            if is_more:
                self._loop.add_writer(self._socket, self._writable)
            else:
                self._loop.remove_writer(self._socket)

    def _writable(self) -> None:
        try:
            self._flush()
        except (psycopg.Error, OSError) as error:
            self._break(error)

    def _readable(self) -> None:
        try:
            self._libpq.consume_input()
            self._take_results()
        except (psycopg.Error, OSError) as error:
            self._break(error)
            return
        if self._is_leaving or self._libpq.status != ConnStatus.OK:
            self._break(ConnectionError(self._libpq.get_error_message()))

    def _hear(self, notice: Diagnostic) -> None:
        self._is_leaving = self._is_leaving or notice.severity_nonlocalized in ("FATAL", "PANIC")

    def _take_results(self) -> None:
        libpq = self._libpq
        is_pause = False
        while not libpq.is_busy():
            result = libpq.get_result()
            if result is None and is_pause:
                break  # one stands between statements, two are the end
            is_pause = result is None
            if result is not None and self._sent:
                self._take(result)

    def _take(self, result: PGresult) -> None:
        first = self._sent[0]
        if result.status != ExecStatus.PIPELINE_SYNC:
            first.results.append(result)
            return
        outcome = self._outcome(first)  # while it is still under way: if that fails, the caller has to hear of it
        self._sent.popleft()
        if self._sent:
            self._begin_turn()
        first.then(outcome)

    def _outcome(self, sent: _Sent) -> list[list[Row]] | Exception:
        found: list[list[Row]] = []
        failed: PGresult | None = None
        for name, result in zip(sent.sent, sent.results, strict=True):
            if result.status not in DONE:
                failed = failed or result
                self._prepared.discard(name or b"")
            elif name is None:
                found.append(_rows_of(result, self._rows))
        return found if failed is None else _error_of(failed)

    # time, and the end

    def _begin_turn(self) -> None:
        self._turn_began = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds_max, self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        if not self._sent:
            return
        due = self._turn_began + self._seconds_max
        if due <= self._loop.time():
            self._break(TimeoutError("no answer in time"))
        else:
            self._timer = self._loop.call_at(due, self._look_at_time)

    def _break(self, error: Exception) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._timer is not None:
            self._timer.cancel()
        # Where nothing can be sent any more, what the database said before it went has not been read yet.
        with contextlib.suppress(psycopg.Error, OSError):
            self._libpq.consume_input()
        with contextlib.suppress(psycopg.Error, OSError):
            self._take_results()
        self._libpq.finish()
        sent, self._sent = self._sent, deque()
        farewell: Exception | None = None
        for one in sent:
            answered = [result for result in one.results if result.status in DONE]
            farewell = farewell or next((_error_of(result) for result in one.results if _ends_connection(result)), None)
            one.then(farewell if farewell is not None and len(answered) < len(one.sent) else _unknown(error))


def _unknown(error: Exception) -> CommitUnknown:
    unknown = CommitUnknown(str(error))
    unknown.__cause__ = error
    return unknown


def _rows_of(result: PGresult, reader: abc.Transformer) -> list[Row]:
    reader.set_pgresult(result, set_loaders=True, format=Format.BINARY)
    return cast("list[Row]", reader.load_rows(0, result.ntuples, tuple))


def _ends_connection(result: PGresult) -> bool:
    """Whether an error is the last that will come of this connection."""
    return result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in (b"FATAL", b"PANIC")


def _error_of(result: PGresult) -> psycopg.Error:
    """What the database said went wrong."""
    try:
        kind = errors.lookup((result.error_field(DiagnosticField.SQLSTATE) or b"").decode())
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(result.get_error_message())
