"""What a failure of the database means, for all that works in transactions.

- A deadlock or a serialization failure: the database rolled back; the same again, a few times.
- The connection broke before COMMIT was sent: nothing happened; the same again on another connection, once.
- COMMIT was sent and not answered: the outcome is unknown, and cannot be found out. `pg_xact_status` would not do: a
  crash may lose the transaction and give its number to another. So nothing is done again, and `StoreUnavailable` says
  that the outcome is unknown. A push is then sent again with its transactionId and stored once; a pop's lease ends by
  itself; an ack is sent again, and is refused if it had happened.
"""

from __future__ import annotations

import random

import psycopg
from psycopg import errors

from forebay.errors import StoreUnavailable

ATTEMPTS_MAX = 6


class CommitUnknown(Exception):
    """COMMIT was sent and not answered."""


AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation, errors.UniqueViolation)
"""Rolled back because of another transaction: a queue or group that was deleted, or made twice, in the same moment."""
AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.InsufficientPrivilege,
    OSError,
    TimeoutError,
)
FAILURES = (*AGAIN, *AWAY, CommitUnknown)
"""What `Attempts` decides about. Anything else is a fault of the work itself."""


def is_connection_doubtful(error: BaseException) -> bool:
    """Whether a failure speaks against the connection: it broke, or leads to a server that only reads."""
    return not isinstance(error, AGAIN)


class Attempts:
    """The attempts at one piece of work."""

    def __init__(self) -> None:
        self._rollbacks = 0
        self._breaks = 0

    @property
    def is_first(self) -> bool:
        return self._rollbacks == 0 and self._breaks == 0

    def pause_after(self, error: BaseException, *, is_outcome_unknown: bool = False) -> float:
        """How many seconds to wait before the same is done again. Raises when it must not be, or is of no use.

        `is_outcome_unknown`: an attempt at what may be done twice was not answered.
        """
        if isinstance(error, CommitUnknown):
            raise commit_unknown(error) from error
        if isinstance(error, AGAIN):
            self._rollbacks += 1
            if self._rollbacks == ATTEMPTS_MAX:
                raise StoreUnavailable(f"rolled back {self._rollbacks} times: {first_line(error)}") from error
            return random.uniform(0, 0.002 * 2**self._rollbacks)
        self._breaks += 1
        if self._breaks > 1:
            raise StoreUnavailable(
                f"PostgreSQL does not answer: {first_line(error)}", is_outcome_unknown=is_outcome_unknown
            ) from error
        return 0.0


def commit_unknown(error: BaseException) -> StoreUnavailable:
    unknown = StoreUnavailable(
        "PostgreSQL did not answer a commit, whose outcome is unknown",
        remedy="A push that is sent again with the same transactionId is stored once",
        is_outcome_unknown=True,
    )
    unknown.__cause__ = error
    return unknown


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
