"""Queues that Forebay makes for itself: their names begin with a dot, and listings leave them out unless requested.

| queue | what is in it |
|---|---|
| `.flow.FLOW.ACTION` | rows that one step of a flow gives to the next |
| `.export.DESTINATION` | the outbox: results on their way to a destination, in the partition of their flow |

They are queues like any other: they can be read, popped and shown by name.
"""

from __future__ import annotations

FLOW_PREFIX = ".flow."
EXPORT_PREFIX = ".export."
EXPORT_GROUP = "export"
"""The consumer group that sends what is in an outbox to its destination."""
PRODUCER = "dispatch"
"""Of what workers of parcels stage; the epoch is the lease."""


def is_internal(queue: str) -> bool:
    """Whether listings leave the queue out."""
    return queue.startswith((FLOW_PREFIX, EXPORT_PREFIX))


def is_between_steps(queue: str) -> bool:
    """Whether parcels, and no group, say what of the queue still waits."""
    return queue.startswith(FLOW_PREFIX)


def step_queue(flow: str, action: str) -> str:
    """What a step reads that begins with this action, where it is not the flow's first."""
    return f"{FLOW_PREFIX}{flow}.{action}"


def outbox_of(destination: str) -> str:
    """The queue whose messages go to the destination."""
    return f"{EXPORT_PREFIX}{destination}"
