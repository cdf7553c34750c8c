"""Transactions one behind the other on one connection, and an event loop that never waits for them.

libpq's pipeline mode again (see `wire`), but here nobody stands and waits: statements leave with `send`, and when their
answers have come, the loop calls back. Whoever sends the next transaction need not wait for the last one, so the
database always has something to do, and the loop reads requests meanwhile.

A transaction has neither BEGIN nor COMMIT. What is sent up to a synchronisation point is one transaction, which the
database commits when it gets there, or rolls back as a whole when a statement fails. So it takes a single trip, and its
locks are not held while anybody makes up his mind. What must not be committed has to fail, or to write nothing.

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

Whoever opens the connection lets the database itself end a statement that takes too long (`statement_timeout`), and
then it is known what became of it. Silence is what is left: `seconds_max` counts from when a transaction was the next
to be answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import Diagnostic
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from forebay.broker.stores.postgres.attempts import CommitUnknown
from forebay.broker.stores.postgres.connections import Row
from forebay.broker.stores.postgres.wire import DONE, Packed, Wire, ends_connection, error_of, rows_of

Connection = psycopg.Connection[Row]
Then = Callable[[list[list[Row]] | Exception], None]
"""Called once, by the loop, with the rows of each statement or with what became of them instead. Never raises."""


class _Sent:
    __slots__ = ("count", "results", "then")

    def __init__(self, count: int, then: Then) -> None:
        self.count = count
        self.then = then
        self.results: list[PGresult] = []


def connected_for(url: str, settings: Mapping[str, str], texts: Sequence[bytes], *, seconds_max: float) -> Connection:
    """A connection on which statements with these texts can be sent. Takes its time: not for an event loop."""
    wire = Wire(url, settings)
    try:
        return wire.given_away(texts, time.monotonic() + seconds_max)
    except BaseException:
        wire.close()
        raise


class TransactionStream:
    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, *, seconds_max: float) -> None:
        self._connection = connection
        self._loop = loop
        self._seconds_max = seconds_max
        self._libpq = connection.pgconn
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
        self._sent.append(_Sent(len(statements), then))
        if len(self._sent) == 1:
            self._begin_turn()
        try:
            for (name, _, _), values in statements:
                self._libpq.send_query_prepared(name, values, [Format.BINARY] * len(values), Format.BINARY)
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
        outcome = self._outcome(first)  # while it is still under way: if that fails, somebody has to hear of it
        self._sent.popleft()
        if self._sent:
            self._begin_turn()
        first.then(outcome)

    def _outcome(self, sent: _Sent) -> list[list[Row]] | Exception:
        for result in sent.results:
            if result.status not in DONE:
                return error_of(result)
        return [rows_of(result, self._rows) for result in sent.results]

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
        # Whoever finds that nothing can be sent any more has not heard yet what the database said before it went.
        with contextlib.suppress(psycopg.Error, OSError):
            self._libpq.consume_input()
        with contextlib.suppress(psycopg.Error, OSError):
            self._take_results()
        self._connection.close()
        sent, self._sent = self._sent, deque()
        farewell: Exception | None = None
        for one in sent:
            answered = [result for result in one.results if result.status in DONE]
            farewell = farewell or next((error_of(result) for result in one.results if ends_connection(result)), None)
            one.then(farewell if farewell is not None and len(answered) < one.count else _unknown(error))


def _unknown(error: Exception) -> CommitUnknown:
    unknown = CommitUnknown(str(error))
    unknown.__cause__ = error
    return unknown
