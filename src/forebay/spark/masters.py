"""Where a session is to run: where the program says, or else where it already is.

Looked at in this order:

1. a session that is there already in this process, as in a notebook;
2. the master that the program names;
3. `SPARK_REMOTE`, a Spark Connect server; `spark-submit --remote` sets it;
4. what `spark-submit` was given, by its flags or its files: its Java runs already, and knows;
5. `MASTER`;
6. this machine, `local[*]`.

A program that names one master and finds a session on another is refused: it would run where it was not meant to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from forebay.errors import Permanent

LOCAL = "local[*]"
_GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the Python that it starts beside its Java."""
_MASTER = "spark.master"


class SessionTarget(NamedTuple):
    """Where a session runs, or is to run."""

    master: str
    is_connect: bool = False
    session: SparkSession | None = None
    """The one that is there already."""
    submitted: Mapping[str, str] = {}
    """The settings that spark-submit was given. Spark's Java runs already where there are any."""


def find_place(master: str | None, environ: Mapping[str, str] = os.environ) -> SessionTarget:
    """Where to run; Permanent if the program's word and what is there do not agree."""
    there = session_there()
    if there is not None:
        return _beside(there, master)
    submitted = _submitted() if _GATEWAY_PORT in environ else {}
    if master is not None:
        return SessionTarget(master, master.startswith("sc://"), None, submitted)
    if remote := environ.get("SPARK_REMOTE"):
        return SessionTarget(remote, is_connect=True)
    return SessionTarget(submitted.get(_MASTER) or environ.get("MASTER") or LOCAL, submitted=submitted)


def session_there() -> SparkSession | None:
    """The session of this thread, or the one that another thread has made."""
    return SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)


def is_connect(spark: SparkSession) -> bool:
    # Compared by name: importing the class needs packages that a classic session can do without. The session's own
    # class may be a child of it (`connect_reader`).
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__)


def is_local(master: str) -> bool:
    return master.split("[")[0] == "local"


def _beside(there: SparkSession, master: str | None) -> SessionTarget:
    is_remote = is_connect(there)
    at = "sc://" if is_remote else str(there.conf.get(_MASTER))
    if master is not None and not (master.startswith(at) if is_remote else master == at):
        raise Permanent(
            f"{master} is asked for, but this process has a session already, on {at}",
            remedy="Stop it first, or name no master to use it",
        )
    return SessionTarget(at, is_remote, there)


def _submitted() -> dict[str, str]:
    # What a SparkContext does first: it finds the Java that spark-submit has started.
    SparkContext._ensure_initialized()  # noqa: SLF001
    return dict(SparkConf().getAll())
