"""Does each row of a plan's result come from one row of its input, and does no row become two?

Only where each row comes from one can a record be blamed for a failure. Only where no row becomes two does sending
a record again bring back nothing that is there already.

Judged by the operators of the analysed plan. One that is not known counts as the worse of the two: sums, windows,
deduplication, sorting, state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from forebay.spark.builtin.json_parsing import PARSED

_LEAVES = frozenset(
    """
    RelationV2 DataSourceV2Relation DataSourceV2ScanRelation Relation LogicalRelation LocalRelation LogicalRDD Range
    OneRowRelation InMemoryRelation HiveTableRelation StreamingRelation StreamingRelationV2
    """.split()  # noqa: SIM905 - a list of words is read more easily
)
_ONE_TO_ONE = frozenset(
    """
    Project Filter SubqueryAlias View WithCTE CTERelationDef CTERelationRef EventTimeWatermark CollectMetrics
    ArrowEvalPython BatchEvalPython Repartition RepartitionByExpression ResolvedHint UnresolvedHint
    """.split()  # noqa: SIM905
)
_OPERATORS = (
    _LEAVES
    | _ONE_TO_ONE
    | frozenset(
        """
        Generate Join Union MapInArrow MapInPandas PythonMapInArrow ArrowEvalPythonUDTF BatchEvalPythonUDTF MapElements
        TypedFilter SerializeFromObject DeserializeToObject LateralJoin Expand
        """.split()  # noqa: SIM905
    )
)
_ANALYSED = "== Analyzed Logical Plan ==\n"
_NODE = re.compile(r"^[\s:+\-|]*'?([A-Za-z0-9]+)")
_PARSING = re.compile(rf"Generate inline\(array\(struct\({PARSED},")
"""Makes one row of each: so is JSON parsed that good rows are separated from bad ones of (`json_parsing`)."""
_PARSES = "(parsing)"


def other_operator(frame: DataFrame) -> str | None:
    """The first operator that is not known to be row by row; None if all are."""
    names = _operators(frame)
    return next((name for name in reversed(names) if name not in _OPERATORS and name != _PARSES), None)


def is_one_to_one(before: DataFrame, after: DataFrame, tables: Iterable[DataFrame] = ()) -> bool:
    """Whether each row of `after` is made of one row of `before`, and no two of them of the same one.

    `tables` are read beside it, as far as they are.
    """
    allowed = set(_ONE_TO_ONE) | {_PARSES}
    for table in tables:
        allowed.update(_operators(table))
    return allowed.issuperset(Counter(_operators(after)) - Counter(_operators(before)))


def _operators(frame: DataFrame) -> list[str]:
    lines = _plan(frame).splitlines()
    return [_PARSES if _PARSING.search(line) else found[1] for line in lines if (found := _NODE.match(line))]


def _plan(frame: DataFrame) -> str:
    """The analysed plan, an operator on each line."""
    explain = getattr(frame, "_explain_string", None)
    if explain is not None:
        # A remote session explains the plan as a whole. Of the analysed one the first line are the columns.
        analysed = str(explain(extended=True)).partition(_ANALYSED)[2].partition("\n== ")[0]
        return analysed.partition("\n")[2]
    java: Any = frame._jdf.queryExecution()  # noqa: SLF001
    return str(java.analyzed().toString())
