"""Spark's Python processes, made a little less busy.

Spark's daemon runs the garbage collector after each piece of work of a process that it keeps, over all modules that are
loaded: twenty milliseconds of processor for every step of planning and every task, while the next one wants to run.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def is_kept_by_spark() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


def spare_the_collector() -> None:
    """Let it pass over what is loaded by now, once, where Spark keeps the process; elsewhere nothing is changed."""
    if not gc.get_freeze_count() and is_kept_by_spark():
        gc.freeze()
