"""Why a query ended, in the words of the code that failed: the stacks of Java and Python around them are left out."""

from __future__ import annotations

from itertools import dropwhile, takewhile

from pyspark.sql.streaming.query import StreamingQuery

from forebay.errors import ForebayError
from forebay.spark.record_faults import TRACEBACK

CAUSE_LINES_MAX = 12
TRACEBACK_CHARACTERS_MAX = 8_000
_BAD_RECORD = "forebay.flows.record_action.BadRecord: "
"""In front of a cause that an action has written for a reader: it is left out."""


def end_of(query: StreamingQuery) -> str:
    """Why a query that is not active any more is not."""
    fault = query.exception()
    return f"query {query.name} ended" if fault is None else cause_of(fault)


def cause_of(fault: BaseException) -> str:
    """What the fault tells, shortened to what a person wants to read."""
    if isinstance(fault, ForebayError):
        return str(fault)
    text = str(fault).split("JVM stacktrace", 1)[0].split("=== Streaming Query ===", 1)[0].strip()
    lines = (_behind_the_stack(text) if TRACEBACK in text else text).removeprefix(_BAD_RECORD).splitlines()
    return "\n".join(lines[:CAUSE_LINES_MAX]) or type(fault).__name__


def traceback_of(failure: str) -> str:
    """Python's tracebacks as they are, without Java's stack behind them; empty if there is none."""
    if TRACEBACK not in failure:
        return ""
    text = failure[failure.index(TRACEBACK) :].split("JVM stacktrace", 1)[0]
    lines = takewhile(lambda line: not _is_of_java(line), text.splitlines())
    return "\n".join(lines).strip()[-TRACEBACK_CHARACTERS_MAX:]


def _behind_the_stack(text: str) -> str:
    """What Python's last traceback ends with: the error and what it says. Java's own stack may follow."""
    lines = text.rpartition(TRACEBACK)[2].strip("\n").splitlines()
    error = dropwhile(lambda line: line.startswith(" "), lines)
    return "\n".join(takewhile(lambda line: line.strip() and not _is_of_java(line), error))


def _is_of_java(line: str) -> bool:
    """What Java puts behind Python's words: its own stack, and an SQLSTATE, which Connect begins with a space."""
    return line.startswith("\t") or line.lstrip(" .").startswith("SQLSTATE")
