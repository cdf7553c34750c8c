"""The broker beside its peers: over HTTP on loopback, 1 KiB messages, durable.

| figure                                   | beside                                                     | goal        |
|------------------------------------------|------------------------------------------------------------|-------------|
| push 1 over 64 connections               | an empty ASGI endpoint on uvicorn                          | 0.4         |
| push 1 by 64 tasks                       | Valkey streams, log synced every second                    | 1           |
| push 100 over 8 connections              | 100,000 messages/s, on a quiet machine                     | 1           |
| push 100 over 8 connections              | the commit log alone, 8 appenders of 100                   | 0.6         |
| push 100 over 8 connections              | PostgreSQL table, Valkey (log always), JetStream, RabbitMQ | 1           |
| pop + ack 100, 8 consumers               | Valkey streams, log synced every second                    | 1           |
| push to a waiting consumer               | 5 ms, the median                                           | at most 1   |
| PostgreSQL store: push 1                 | an endpoint that does one INSERT per request               | 4           |
| PostgreSQL store: push 100               | bare multi-row inserts                                     | 0.7         |
| 10,000 partitions, push and pop          | 10 partitions, both stores                                 | at most 1.5 |
| a backlog of 10M: push and pop           | hardly any backlog                                         | 0.9         |
| a backlog of 10M: memory                 | hardly any backlog                                         | at most 1.1 |

**What drives what.** All load comes from processes of its own. Against an empty endpoint both sides get *prepared
requests* (`forebay.bench.load`): bytes made beforehand, so that the server is what is measured. Against a peer, both
sides are driven by the published asyncio client of each (`systems`), all on uvloop, with the same number of connections
and the same batches; Forebay's client makes one request of single pushes that wait at the same time, so 64 tasks need
few connections. The goal counts for that pair. What the server does with prepared requests stands
beside it without a goal (its goal is 0): on few cores the client, not the server, is what is slow. Without a goal stand
also an endpoint that does nothing and a bare committer (`committer_app`), beside the lines that they explain.

**Fairness.** Servers run one beside the other on the same disk and take turns; one that waits is idle. Each is used as
its own documentation says: streams and pipelines, asynchronous publishing with confirms, arrays in one INSERT, and the
C parser of Valkey's client. Valkey does not rewrite its log during a run. JetStream keeps its default: it answers
before the disk has synced, which none of our figures do. PostgreSQL runs with the settings of the test servers, on
which Forebay's PostgreSQL store runs too. Payloads are text that Snappy cannot shrink.

**What it does not say.** Loopback has no network, and one machine's cores are shared by client and server. RabbitMQ and
JetStream can replicate, which is not required of them here. A figure of `--quick` says that the suite works, no more.

**At failures.** A missing peer is an error with a remedy, unless it was left out by name; what was left out stands in
the result. A server or a load process that dies ends the run with its last words. Nothing outlives the run: servers are
kept as the tests' are (`forebay.testing.servers`), data are in a directory that is removed.

`suite` wires it; `figures_*` are the lines; `servers` and `systems` are what takes part; `load_process` drives them.
"""
