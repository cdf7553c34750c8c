"""Flows as Spark knows them: their chains, and the columns that one chain hands on to the next.

Every version of a flow is compiled once, over no messages: that is how `flows check`, a starting worker and the first
lease of a version find what is wrong with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from forebay.errors import Permanent
from forebay.flows.chains import Chain, chains_of, flow_of_spec
from forebay.flows.definition import Flow
from forebay.spark.parcels.chain_plan import ChainPlan
from forebay.spark.parcels.handing_on import row_schema_of
from forebay.spark.parcels.messages import message_columns

FLOWS_MAX = 1_000
"""Versions of flows that are remembered; the others are compiled again."""


class KnownChain(NamedTuple):
    chain: Chain
    row_schema: StructType | None
    """The columns that the chain before hands on; None for the first, which reads messages."""


def compiled_chains(spark: SparkSession, flow: Flow) -> list[KnownChain]:
    """The chains of a flow. Raises DoesNotCompile."""
    found: list[KnownChain] = []
    row_schema: StructType | None = None
    for chain in chains_of(flow):
        found.append(KnownChain(chain, row_schema))
        nothing = spark.createDataFrame([], message_columns())
        with ChainPlan(spark, chain, nothing, row_schema=row_schema) as plan:
            row_schema = row_schema_of(plan.output)
    return found


class KnownFlows:
    """Remembers what was compiled. Of all threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._known: dict[str, list[KnownChain]] = {}

    def chain(self, spec: Mapping[str, Any], step: int) -> KnownChain:
        """A chain of the flow. Raises DoesNotCompile, or Permanent if there is none."""
        if not spec:
            raise Permanent(
                "the flow says nothing of what is to be done",
                remedy="It was not defined by a worker of Spark: let a worker of its own serve this action class",
            )
        chains = self._chains(spec)
        if step >= len(chains):
            raise Permanent(f"the flow has {len(chains)} steps, and not {step + 1}")
        return chains[step]

    def _chains(self, spec: Mapping[str, Any]) -> list[KnownChain]:
        key = json.dumps(spec, sort_keys=True)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = compiled_chains(self._spark, flow_of_spec(spec))
            with self._lock:
                if len(self._known) >= FLOWS_MAX:
                    self._known.clear()
                self._known[key] = known
        return known
