"""The store on PostgreSQL: one database, any number of servers, nothing that one of them must remember for another.

**Tables** (schema `forebay`, made by `migrations`; the queries are in `broker/sql/postgres`, one file each)

| table          | one row per              | columns that need a word                                              |
|----------------|--------------------------|-----------------------------------------------------------------------|
| `queues`       | queue                    | `next_seq`: what the next message gets. `removed`, `size_bytes`:      |
|                |                          | what is kept, without counting. `name`: none once it was deleted      |
| `partitions`   | partition                | `last_seq`, `newest_us`: is there work, and is it old enough.         |
|                |                          | `last_position`: messages ever pushed. `removed_seq`,                 |
|                |                          | `removed_position`: up to where retention has removed them.           |
|                |                          | `last_stretch`: the stretch of 1,024 seqs that `last_seq` is in. It   |
|                |                          | is indexed, and the seq is not: most pushes change no index here      |
| `messages`     | message                  | append-only. `payload`: bytes, never looked into. `position`: its     |
|                |                          | place in the partition, so that lag is a subtraction.                 |
|                |                          | `is_minted`: said by older servers only; then the id is not indexed   |
| `deleted_messages` | message deleted by   | `position`: stays taken, so that lag is still a subtraction, less     |
|                | itself                   | these. Gone when retention has passed it                              |
| `groups`       | group, queue             | `start_seq`: where it starts in partitions it has not touched.        |
|                |                          | `looked_seq`: partitions whose last seq is not higher are known       |
| `deliveries`   | partition, group that    | `state`: what `broker.delivery` decides on; the others repeat what    |
|                | had to do with each other| queries need. `due_us`: when to look again, none for never            |
| `dead_letters` | message, group           | a copy of the message: retention may remove the original              |
| `stages`       | stage                    | `body`: its rows, as Arrow has them                                   |
| `queue_commits`| write of an epoch, queue | `rows`, `size_bytes`, `checksum`: what it held, none from before they |
|                |                          | were noted. `request`: stands for the stages that were named          |
| `traces`       | event                    | `created_us`: by the clock of the server that received it             |
| `holds`        | reader that is no group  | `seq`: what is finished from there on is spared, until `until_us`     |
| `flags`        | switch                   |                                                                       |
| `waits`        | queue, server            | servers to notify of pushes; unlogged, worth nothing after a crash    |

**The way in** (`push_batcher`). Pushes that wait at the same time share a transaction. It locks its queues' rows, and
only then are seqs given out; the lock lasts until the commit, so commits become visible in the order of their seqs, and
a reader that has seen seq 7 can never be shown a 5 later. Pushes to partitions that are known are numbered and written
by one statement (`one_trip_push`), in one trip, on a connection that the event loop watches (`transaction_stream`); the
next group leaves before the last one is answered. Any other group asks, decides (`pushing`) and writes in a transaction
on a connection of the pool (`push_lookups`), as transactions and replays do.

**The way out** (`popping`). A group finds work in two places and scans neither all partitions nor all messages: in
`deliveries`, by `due_us` (more to come, a lease that ends, a retry, a delay); and in `partitions`, by `last_seq` above
the group's `looked_seq`, whole stretches at a time. What is found in the second is entered into the first, so each push
is looked at once per group. A due row is locked with SKIP LOCKED, decided upon in Python, and written once. No message
is ever updated.

Why nothing is missed: a push makes its partition's `last_seq` higher than any `looked_seq` written before, because
seqs are visible in order. A transaction that looks around locks the deliveries that it finds, so it either sees the
`due_us` that a concurrent ack writes, or that ack sees the new `last_seq`.

Why nothing is looked at for ever: a transaction that writes a delivery makes it due at once only if there is a message
behind what was seen. A higher `last_seq` is not enough, because the last message may have been deleted. Both are of one
snapshot, so what is said above holds for the message too. A pop that gets nothing from what is due looks around all the
same.

Messages that died of waiting are buried by the pop that comes upon them, in transactions of a bounded size: each
leaves the partition due, so that what it did is kept, and the pop, or the next one, goes on behind it.

**Away again** (`retention`, `purging`). In pieces, each in a transaction that locks its queue: messages that are too
old, from the front of the queue; those that every group has finished, from the fronts of partitions, which are looked
through by name, without a lock; and all that belongs to a queue which has no name any more. If settings say so, groups
that do not pop and partitions that are empty: of these a queue keeps the last seq that was removed (`gone_seq`).

**Ranges as Arrow** (`reading`). PostgreSQL puts the values of a page side by side, so that they come as buffers and
not row by row. **Stages** (`staging`) become messages in one transaction that claims the write for its queues, locks
them and pushes in pieces of 4 MiB; pushes to these queues wait for its end, and are refused (503) after 12 seconds.

**Locks** are taken in one order: epochs and their stages, dead letters, queues by number, (their partitions go with
them), groups, deliveries by group and partition. A transaction that takes several of a kind sorts them first; poppers
skip what is locked. A purge takes a queue that has no name any more first: a transaction that is still at something of
it is undone at worst, and done again.

**What is durable when**

| what was answered                                          | killed server | killed PostgreSQL, power cut       |
|------------------------------------------------------------|---------------|------------------------------------|
| push, transaction, configure, flag, seek, deletion, replay | survives      | survives                           |
| stage, commit, abort                                       | survives      | survives                           |
| pop (leases, attempts), ack, extension, trace, retention   | survives      | but for the last moments: at most  |
|                                                            |               | three times `wal_writer_delay`, in |
|                                                            |               | order, each as a whole             |

What is undone is delivered again, or removed again.

**What happens when**

| trouble                         | a request                                   | remedy                             |
|---------------------------------|---------------------------------------------|------------------------------------|
| PostgreSQL is away              | `StoreUnavailable`; each tries to connect   | none: it resumes by itself         |
| connection breaks before COMMIT | done again on another connection, once      | none                               |
| COMMIT is sent and not answered;| `StoreUnavailable`, `is_outcome_unknown`:   | send it again: a push is stored    |
| a known push is not answered    | done as a whole, or not at all              | once, an ack refused if it counted |
| PostgreSQL ends a connection    | a push that it did not finish is done again | none                               |
| (restart, `pg_terminate_backend`)|                                            |                                    |
| PostgreSQL hangs                | `StoreUnavailable` after the time of one    | none                               |
|                                 | request; unknown if COMMIT was sent         |                                    |
| deadlock, serialization failure | done again, up to 6 times                   | none                               |
| a server is killed              | its transactions roll back, its leases end  | none                               |
| two servers start at once       | one migrates, the other waits               | none                               |
| newer or changed schema         | does not open (`SchemaRefused`)             | use the Forebay that made it       |
| the clock is set back           | plans are looked at again, leases from the  | none                               |
|                                 | future are over                             |                                    |
| a notice is lost                | waiting consumers look by themselves        | none                               |

**Time** is the database's, so that all servers agree (`statement_timestamp()`, through `forebay.now_us()`); a store
that was given a clock passes its time with every query instead.

**Limits**

| what                                  | limit                            | at the limit                      |
|---------------------------------------|----------------------------------|-----------------------------------|
| connections per server                | 2 for pushes, 4 durable,         | wait 10 s, then `StoreUnavailable`|
|                                       | 8 delivery, 4 browsing, 4 for    |                                   |
|                                       | other rooms, 2 for notices       |                                   |
| one group of pushes                   | 2 MiB, or one request            | the next group begins             |
| groups of known pushes under way      | 2                                | pushes wait for the next          |
| one statement of a push               | 0.4 of a request's 10 s          | PostgreSQL ends it; once more,    |
|                                       |                                  | then `StoreUnavailable`           |
| partitions whose numbers are          | 100,000                          | all are forgotten, and found again|
| remembered by pushes                  |                                  |                                   |
| partitions entered by one look around | 1,000, and the rest of a stretch | it looks again                    |
| buried by one transaction of a pop    | 10,000 messages, 64 MiB, and a   | it commits, and the pop goes on   |
|                                       | piece (500, or the batch)        | in another one, up to 20          |
| one piece of retention, or of the     | 2,000 rows, 64 MiB and a message | the next piece begins             |
| purge of a deleted queue              |                                  |                                   |
| partitions that these look at at once | 500                              | they look at the next ones        |
| old traces removed by one statement   | 1,000                            | the next statement begins         |
| partitions of a group that is deleted,| as many as PostgreSQL forgets in | rolled back, `StoreUnavailable`   |
| or sought as a whole                  | the time of a request: millions  |                                   |
| one page of a range                   | 4 MiB and a message, 65,536 rows | the next page begins              |
| one commit of stages                  | 10 minutes                       | rolled back, `StoreUnavailable`   |

**Ids** are not looked for when a push is written in one statement: the index refuses one that is there already, and
the next attempt looks. For the seconds after that, producers' own ids are looked for first. **Minted ids** are indexed
like all others, and never looked for before the first attempt, because no other request can have used them. If an
earlier attempt turns out to have been committed (its answer was lost, and the message came again from a failover file),
the index refuses the second, and the attempt after that looks and finds it.

**What it does not do**: shard one queue over several databases.
"""

from forebay.broker.stores.postgres.migrations import SchemaRefused
from forebay.broker.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "SchemaRefused"]
