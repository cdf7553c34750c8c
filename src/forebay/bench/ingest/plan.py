"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

TASKS = 64
OTHER_TASKS = (1, 512)
"""The gain follows from how many pushes wait together, so it is shown for a lone producer and for a busy one too."""
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    events: int = 10_000
    visible_seconds: float = 10.0
    outage_pushes: int = 20_000
    backlog: int = 100_000
    recovered: int = 10_000
    many_recovered: int = 1_000_000

    @classmethod
    def quick(cls, rounds: int = 2) -> Plan:
        """All of it, but small: for trying it out, and for the tests."""
        return cls(rounds, 1000, 1.0, 500, 2000, 1000, 20_000)
