"""Does each row of a plan's result come from one row of its input? Only then can a record be blamed for a failure.

Judged by the operators of the analysed plan. One that is not known to be row by row counts as not so: sums, windows,
deduplication, sorting, state.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

_OPERATORS = frozenset(
    """
    Project Filter Generate Join Union SubqueryAlias View WithCTE CTERelationDef CTERelationRef EventTimeWatermark
    MapInArrow MapInPandas PythonMapInArrow ArrowEvalPython BatchEvalPython ArrowEvalPythonUDTF BatchEvalPythonUDTF
    Repartition RepartitionByExpression ResolvedHint UnresolvedHint MapElements TypedFilter SerializeFromObject
    DeserializeToObject LateralJoin Expand RelationV2 DataSourceV2Relation DataSourceV2ScanRelation Relation
    LogicalRelation LocalRelation LogicalRDD Range OneRowRelation InMemoryRelation HiveTableRelation
    StreamingRelation StreamingRelationV2
    """.split()  # noqa: SIM905 - a list of words is read more easily
)
_ANALYSED = "== Analyzed Logical Plan ==\n"
_NODE = re.compile(r"^[\s:+\-|]*'?([A-Za-z0-9]+)")


def other_operator(frame: DataFrame) -> str | None:
    """The first operator that is not known to be row by row; None if all are."""
    lines = _plan(frame).partition(_ANALYSED)[2].partition("\n== ")[0].splitlines()
    # The first line are the columns.
    names = [found[1] for line in lines[1:] if (found := _NODE.match(line))]
    return next((name for name in reversed(names) if name not in _OPERATORS), None)


def _plan(frame: DataFrame) -> str:
    told = getattr(frame, "_explain_string", None)
    if told is not None:
        return str(told(extended=True))
    # Spark offers the plan only as something to print, and what is printed goes through the whole process.
    java: Any = frame.sparkSession._jvm  # noqa: SLF001
    return str(java.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended"))  # noqa: SLF001
