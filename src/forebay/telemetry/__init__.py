"""Telemetry: what Forebay tells of itself, in figures, accounts and traces.

`metrics` declares every metric once; `page` writes them for Prometheus; `own_process` has those of the process itself.
`ledger` says of each stage what it accepted and what became of it, as sums that have to come out. `tracing` notes spans
of messages whose producer sent a context, and `span_export` sends them on. The figures come from the rooms that they
are of: what is gathered when is in `forebay.api`.

Nothing here is durable. Counters begin anew with the process; spans wait in a buffer of a fixed size, and what it has
no room for is dropped and counted.
"""
