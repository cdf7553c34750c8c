"""Export: the way out, to destinations that may be slow, be away, or refuse. Nothing is given up quietly.

Two ways in, one way out
------------------------
An `Exporter` has one destination and works on a *feed*: claim a batch, send it, confirm it.

    receivers ──push──▶ send queue ──┐
                                     ├──claim──▶ exporter: workers, breaker, backoff ──▶ destination
    a queue of the broker, a group ──┘                 └──▶ dead letters

- *Receivers → send queue → destination.* The send queue (`forebay.sendqueue`) is the only buffer, and its limits and
  `full_behavior` decide what happens when the destination is away for longer than they last.
- *Queue → destination* (`exports:`). The exporter is a consumer group of the broker (`group_feed`): it leases messages,
  and acknowledges them when the destination has said yes. The queue is the buffer, so nothing is ever dropped: while
  the destination is away no more is leased. Attempts, dead letters, replay and lag are the broker's. Messages of one
  partition are under way in one batch at a time, so their order is kept.

- *Outboxes.* Each destination has such an export from the start, for the results of flows: from the queue
  `.export.NAME`. It rests until that queue is there (`outboxes`).

What happens to a batch
-----------------------
| the destination | class | then |
|---|---|---|
| takes it | | confirmed |
| takes part of it (OTLP partial success) | | confirmed; what it rejected is counted and logged |
| cannot be reached, DNS, TLS, reset | `network` | again later, at its old place in line |
| does not answer in time, or answers 408 | `timeout` | the same |
| 500, 502, 503, 504, other 5xx | `server_error` | the same; not before `Retry-After` |
| 429 | `rate_limit` | the same; all batches of the destination wait for `Retry-After` |
| 413, or 400 that says "too large" | `too_large` | in halves, down to one item; the size is remembered |
| 401, 403, 407 | `auth` | again later; after `max_attempts` a dead letter |
| 400, 422; no form there | `client_error` | the same; then in halves: only the items that are wrong are dead letters |
| 301, 302, 303 | `client_error` | the same, as a whole: following them would leave the batch behind |
| other 4xx, one item too large | `client_error` | the same, as a whole |
| anything else | `unknown` | the same |

A batch is never given up by its age unless `max_elapsed` is set; then it becomes a dead letter. Between attempts it
waits by `backoff`; when the breaker closes again, nothing waits any longer. A dead letter keeps the batch, the reason
and the answer, on disk for send queues (`dead_letters`) and in the broker for exports.

Every request carries an idempotency key, the same whenever the same batch is sent again: a destination that remembers
keys takes a batch once although its answer was lost. A split batch's halves have keys made from its own, and after a
crash they are cut anew: it is the whole batch that is sent again. A batch outlives its process as it was cut: a send
queue holds batches, and of an export the store gives a lost lease out again as a whole, whatever was pushed meanwhile.

Stopping
--------
Sending goes on for `drain_timeout`, while the destination takes batches; what is under way is then cancelled, and what
is left is written to disk by the send queue, whatever mode it is in. Messages of exports are released to the broker.

Rooms
-----
`batch` what is carried; `outcome` the classes above; `destination` the protocol, `destinations/` its variants, one
contract suite for all; `splitting` halves of a batch; `exporter` workers, or preparers and senders; `feed` the protocol
of where batches come from, `queue_feed` a send queue with its `full_behavior`, `group_feed` a group of the broker;
`accepting` how what receivers took gets there, or out at once; `queue_export` one of these with its exporter;
`outboxes` those that every destination has; `dead_letters`; `stranded` send queues of destinations that are gone.
"""
