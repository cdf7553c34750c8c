"""What a letter of a flow's error queue says of its record, and which way the record can be sent again.

The headers of a letter are JSON. Those that decide:

| header | |
|---|---|
| `queue`, `seq` | the message that the record is, or is of: of the source, or of the internal queue in front of a step |
| `step` | which step has read it, by its first action; on parcels |
| `did` | which parcel it was in; on parcels |
| `holds` | what the letter's payload is. `input`: what the step has read, byte for byte. `row`: only the row in front of the action that failed, which actions before it have made |
| `split` | true: the record had become several rows, and this is about one of them |

A record goes back alone only where that brings back its own results and nothing else. A header that is not certain is
left out, and the way with it.
"""  # noqa: E501 - a row of the table is a line

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forebay.model.internal_queues import is_between_steps, step_queue

QUEUE, SEQ, STEP, DID, HOLDS, SPLIT = "queue", "seq", "step", "did", "holds", "split"
INPUT, ROW = "input", "row"


class ToQueue(NamedTuple):
    """The payload is pushed to the queue that the record is from."""

    queue: str


class Original(NamedTuple):
    """The message that the record was made of is pushed to its queue, as long as it can be read there."""

    queue: str
    seq: int
    replay: str
    """What else can be done."""


class ToStep(NamedTuple):
    """A parcel starts at a step of the flow, with the payload."""

    step: str
    did: str
    """The parcel that the record was in."""


class Stays(NamedTuple):
    """It cannot be sent alone."""

    reason: str


Way = ToQueue | Original | ToStep | Stays


def replay_of(did: str) -> str:
    """The command that sends a whole parcel through its flow again."""
    return f"forebay parcels replay {did}"


def way_of(headers: Mapping[str, Any], flow: str, source: str) -> Way:
    """Which way the record of a letter goes. `source`: the flow's queue, for letters that name none."""
    queue, did, seq = headers.get(QUEUE, source), headers.get(DID), headers.get(SEQ)
    replay = replay_of(did or "DID")
    if not queue:
        return Stays(f"failed without a message: {replay}")
    if headers.get(SPLIT):
        return Stays(f"the record became several rows, of which others may be there: {replay}")
    is_row = headers.get(HOLDS) == ROW
    if not is_between_steps(queue):
        if not is_row:
            return ToQueue(queue)
        if isinstance(seq, int):
            return Original(queue, seq, replay)
    if is_row:
        return Stays(f"the row in front of action {headers.get('action', '')} is no message: {replay}")
    step = headers.get(STEP)
    # Letters of before do not say what they hold, and the step may be another flow's, whose errors this one catches.
    if headers.get(HOLDS) == INPUT and did and step and queue == step_queue(flow, step):
        return ToStep(step, did)
    return Stays(f"failed in step {queue.removeprefix('.flow.')}: {replay}")
