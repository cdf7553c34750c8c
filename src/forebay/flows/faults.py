"""What is wrong with definitions of flows, raised all at once and with the place of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.errors import Permanent


@dataclass(frozen=True, slots=True)
class FlowFault:
    """One fault: `forebay.yaml line 7: clicks: actions.0.params.fraction: expected float <= 1.0`."""

    place: str
    flow: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.flow, self.key, self.message) if part)


class FlowsRefused(Permanent):
    """The definitions cannot be run. `faults` lists all that is wrong with them, not just the first."""

    def __init__(self, faults: Sequence[FlowFault]) -> None:
        self.faults = tuple(faults)
        count = len(self.faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"{count} fault{'' if count == 1 else 's'} in the flows:\n{lines}")
