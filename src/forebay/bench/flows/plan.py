"""How much is done: one plan for the figures that count, one for trying out whether all of it works."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.bench.spark.plan import Plan as SparkPlan

MESSAGES = 500_000
WARM_PARCELS = 20
"""How many parcels may wait warm when the burst comes."""
BURST_TIMES = 10


@dataclass(frozen=True, slots=True)
class FlowsPlan:
    rounds: int = 3
    messages: int = MESSAGES
    flows: int = 50
    live_seconds: float = 15.0
    live_rounds: int = 3
    parcel_messages: int = 1000
    """In each parcel of the burst."""

    @classmethod
    def quick(cls, rounds: int = 1) -> FlowsPlan:
        """Small in everything: it shows that the suite works, and says little about speed."""
        return cls(rounds, messages=4000, flows=4, live_seconds=1.0, live_rounds=1, parcel_messages=50)

    @property
    def room(self) -> SparkPlan:
        """What needs about as much of the disk."""
        return SparkPlan(messages=self.messages)
