"""`forebay bench ingest`: QoS 0, failover, drain and start-up recovery, on a real PostgreSQL.

- **QoS 0**: 10,000 single events of 64 tasks (and of 1 and 512) through the client, which lets pushes that wait
  together share a request.
  Beside it an endpoint that inserts and commits one row per request (`bench.broker.insert_app`), which is what one
  transaction per push costs. Store writes are counted by the server; visibility is from the push to a consumer that
  waits in a long poll, at 1,000 events/s.
- **Outage**: single pushes over 16 connections while PostgreSQL is stopped, beside the same on a healthy embedded store
  in the same run; each side's 99th percentile. Failover begins when a push is first answered `buffered` after
  PostgreSQL was frozen (SIGSTOP), the slowest way of being away.
- **Drain**: from PostgreSQL's return until nothing waits, for a backlog that was pushed during the outage.
- **Recovery**: how much longer a start takes with events in the failover file than with an empty one; and the most
  memory that the process had.
"""
