"""A flow, and where it stands: what faults are shown with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forebay.flows.definition import Flow
from forebay.flows.faults import FlowFault


@dataclass(frozen=True, slots=True)
class Located:
    """A flow, and where its values stand."""

    flow: Flow
    origin: str
    """The file or module it came from."""
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, path: str) -> str:
        """Where the value at that path stands, or the nearest one around it."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, self.origin)

    def fault(self, path: str, message: str) -> FlowFault:
        return FlowFault(self.place(path), self.flow.name, path, message)
