"""The functions of flows' own actions, for executors that do not have the modules.

On this machine Spark's Python processes import them by name. Elsewhere they travel whole, with what they call of their
own package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from forebay.flows.definition import ClassAction, Flow
from forebay.flows.registry import BUILTIN, find_action
from forebay.spark.masters import is_connect, is_local


def send_code(spark: SparkSession, flows: Iterable[Flow]) -> None:
    """Let the functions of the flows' actions travel whole, unless Spark runs on this machine."""
    if not is_connect(spark) and is_local(str(spark.conf.get("spark.master"))):
        return
    names = {action.class_name for flow in flows for action in flow.actions if isinstance(action, ClassAction)}
    for name in names - set(BUILTIN):
        package = find_action(name).__module__.partition(".")[0]
        cloudpickle.register_pickle_by_value(sys.modules[package])  # type: ignore[no-untyped-call]
