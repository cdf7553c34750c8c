"""What a store keeps about flows: what their worker says of them, and what people want of them.

A store does not know what a flow is: the report is JSON that it keeps as it came. A flow has one worker at a time. A
worker that has been quiet for a while, or that has let go of the flow, can be followed by another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One flow."""

    name: str
    worker: str = ""
    """Whose report it is; empty when no worker has the flow."""
    report: bytes = b"{}"
    updated_us: int = 0
    """When its worker was heard last; 0: never."""
    is_paused: bool = False
    resumes: int = 0
    """How often people have resumed it, so that its worker notices each time."""
