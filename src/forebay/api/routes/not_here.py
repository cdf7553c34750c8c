"""What Queen has and Forebay has not: answered with 501 and the way to go instead, so that no client waits in vain."""

from __future__ import annotations

NOT_HERE: dict[bytes, str] = {
    b"/api/v1/kv": "Forebay has no key-value store; keep such state in a database of your own",
    b"/api/v1/locks": "Forebay has no locks; a partition is delivered to one consumer of a group at a time",
    b"/api/v1/timers": "Forebay has no timers; delay messages with the queue's delayedProcessing",
    b"/api/v1/ephemeral": "Forebay has no ephemeral queues; push with bufferMs, and set ttl on the queue",
    b"/api/v1/fetch": "Forebay has no offset reads; read with GET /api/v1/messages?queue=…&fromSeq=…, or as Arrow",
    b"/api/v1/partitions/changed": "Forebay has no list of changed partitions; see GET /api/v1/resources/partitions",
    b"/api/v1/migration": "Forebay migrates nothing; dump and restore the database with its own tools",
    b"/streams/v1": "Forebay has no stream queries; its flows run SQL and Python on Spark, see docs/guides/flows.md",
}
"""By the beginning of the path: whole segments of it."""
