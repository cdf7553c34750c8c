"""What a worker reports to the servers of its flows, and the orders that it gets: `POST /api/v1/flows/reports`.

The servers are the authority for what people want of a flow, and keep what was reported of it last. So `forebay flows
list`, `pause` and `resume` say and do the same from every machine, and counts go on when a worker is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from forebay.flows.supervision import State, Wish

QUIET_SECONDS = 15.0
"""A flow whose worker has not been heard for this long is `lost`, and another worker may have it."""

CAUSE_CHARACTERS_MAX = 4_000
_Text = Annotated[str, Meta(max_length=CAUSE_CHARACTERS_MAX)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 53))]


class FlowReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known about a flow, as `forebay flows list` shows it."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    state: State
    cause: _Text = ""
    """Why it failed or was restarted last; empty again behind a completed batch."""
    note: _Text = ""
    """What it is busy with beside its batches."""
    since: _Text = ""
    """When this state began, RFC 3339."""
    restarts: _Count = 0
    batches: _Count = 0
    batch: _Count | None = None
    rows: _Count = 0
    """Messages read since the flow began; so are the other counts. Those of a flow on parcels are the servers' own."""
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    """How long the last batch took."""
    lag: _Count | None = None
    """Messages in the queue that the flow has not read; null where it is not known."""
    bad_rows: _Count = 0
    """Records in the error queue."""
    skipped_rows: _Count = 0
    """Records left out, as `on_error: skip` says."""
    queue: _Text = ""
    group: _Text = ""
    error_queue: _Text = ""
    host: _Text = ""
    pid: _Count = 0


class FlowControl(Protocol):
    """The servers, as a worker sees them. Nothing here waits for one."""

    def known(self, name: str) -> FlowReport | None:
        """What was reported of the flow before this worker began; None if nothing was."""

    def wish(self, name: str) -> Wish | None:
        """What is wanted of the flow; None as long as no server has said so."""

    def pause(self, name: str) -> None:
        """Have the flow paused."""

    def report(self, reports: Sequence[FlowReport]) -> None:
        """Hand over how all flows stand. The newest word counts."""
