"""The embedded store: a commit log per queue for the messages, SQLite for everything that is looked up.

**What is the authority.** The log is, for messages: a push is accepted when its record is synced. What SQLite knows of
messages (which record holds which messages of which partition, explicit transaction ids) is derived; after a crash it
catches up by reading each log from the last seq that was indexed. SQLite is the authority for queues, options, groups,
cursors, leases, attempts, dead letters, traces and flags. The end of the index is kept in memory (`unwritten_index`)
until something other than a push is to be done. Ids that producers gave are kept there too, or, where many of one
partition come together, put into SQLite before their record is written; an append that fails takes them out again
(`given_ids`).

**One thread does it all.** The coroutines of `EmbeddedStore` hand work to the store's thread. In a *cycle* it takes all
the work that waits, appends the pushes with one sync per queue, does the rest, and commits what that changed in SQLite
as one transaction, which pushes alone mostly do not need; then all requests are answered. So there are no locks, no
lost updates, and the cost of a commit is shared.

**What is durable when**

| what                          | survives a killed process | survives a power cut                                   |
|-------------------------------|---------------------------|--------------------------------------------------------|
| a push that was answered      | yes                       | yes: the log was synced                                |
| a transaction answered        | yes                       | yes: its SQLite commit is synced                       |
| an ack, a lease, a cursor     | yes                       | all but the last moments: those messages come again    |
| where a new group begins      | yes                       | yes: synced, unless it begins with the first message   |
| configure, seek, delete       | yes                       | yes: synced                                            |
| a stage, a commit, an abort   | yes                       | yes: file and SQLite commit are synced                 |

A queue that a push, or the first pop of a group for new messages, makes is synced with it.

Segments that retention makes useless are removed after the synced commit that says so.

**What cannot be read any more** (a record that rotted, a segment that is gone, a log that has lost its end) costs its
messages and nothing else: whatever meets it notes it as lost and goes on behind it (`losses`). Opening compares index
and logs (`reconciling`); a log whose end is missing goes on behind the last seq that was ever given out. What is
lost is reported in the server's log, its metrics, `/readyz`, `/api/v1/status/lost` and `forebay audit`, to the seq.

**A cycle that cannot be committed** happened to no request as far as this process knows: all of them fail with that,
and memory is made again from the database, at once or before the next cycle. Where it was the commit itself that SQLite
did not confirm, a kill may bring it back until another commit has overwritten it: its requests fail with an error that
says that their outcome is unknown. So is a push, always: what it appended to the logs may count later.

**A call that breaks**, by an exception that is not expected, or that is refused after it has changed something, is left
out of its cycle. All of it is rolled back, memory is made again, and the others are done again: they notice nothing.
Pushes that were appended are not appended twice: the index catches up with them. Pushes to one queue are tried again
one by one; where something of them was in the log already, they break together, and no others with them; a queue that
cannot be made breaks nothing, and leaves no directory. A cycle in which one call after another breaks is one that
cannot be committed.

**No request holds up others for long**, whatever the number of queues, partitions and groups (100 ms of the thread's
time at the most). Figures of queues and groups are counted by SQLite in another thread (`figures`), and so is what a
group's first pop has to do (`ready`). Retention is planned there and carried out in small turns, as are clearing,
seeking, and removing what a deleted queue has left (`retention_plan`, `purging`). What waits in a queue with a limit is
counted once, in turns, and kept as it changes (`waiting_count`). A new queue takes the disk fifteen syncs: in a cycle
as many are made as 30 ms allow, one at least (`turn`), also those that a push to several, or a transaction, needs
before it is stored. A push to more than 8 queues is stored queue by queue, each in a cycle of its own, and answered
item by item. A transaction cannot be split, so its requests are for 64 queues at the most; others wait for a sync of
each.

**A deleted message** stays in the log, which is never rewritten: a row says that it is gone, and everything that reads
respects the row. Its bytes leave the disk with their segment, and the row leaves with them.

**An empty partition** that is removed (`expiring`) leaves its name and its last seq behind until its records leave the
disk: they are passed over, and a partition of that name begins behind them. When groups last popped is kept in memory
and written down by each retention, and at the end.

**A transaction** writes its messages to the logs with its own id as the records' tag, and then commits the id, its acks
and the index rows in SQLite: that is the one commit point. A record whose tag SQLite does not know as committed does
not count, whenever the crash came. Tags are kept for as long as a log holds records with them (`tags`). One that is
refused is taken out of memory as well, as far as it had come (`transactions`).

**Stages and their commits** (`staging`, `committing`; the protocol is `forebay.broker.arrow`'s). A stage is a synced
file and a row. A commit is a transaction as above, whose records are written from the stages' files, up to 8 MiB or
32,768 rows each; what was committed is remembered in the same SQLite commit, a row per queue. Files go after it. Killed

| when                          | what the next opening finds                                                          |
|-------------------------------|--------------------------------------------------------------------------------------|
| before the stage's row        | a file without a row, which it removes                                               |
| between stage and commit      | the stage, which can be committed                                                    |
| while records are written     | records whose tag does not count, and the stages: the commit can be done again       |
| after the SQLite commit       | all messages, known as committed; files that are left have no row, and are removed   |

Files of stages have no version of their own: the database's stands for them, and a newer one is refused before any file
is looked at. Everything else waits while a commit writes: about as long as the disk takes to sync its bytes.

**What is gone** is known per partition: its floor, the last seq that retention removed. Of partitions that are removed
the queue keeps the highest (`gone_seq`). A reader that counts on what is above that requests an error for it
(`reading`). A reader that is no group has a row in `holds`: until its time is over, what is finished from its seq on is
not removed.

**A row of `states`** is what `delivery` encodes, or in short the range of new messages that a lease covers
(`lease_rows`).

**Ranges** (`reading`) are read beside the store's thread, which says once how far the log is settled.

**Layout of the data directory**

    lock                  held by the process that owns the directory, with all logs in it; its text names it
    store.sqlite          queues, index, cursors …
    stages/<id>.arrow     rows that wait for their commit
    queues/<number>/      one commit log each; numbers are never used twice, so a deleted queue cannot come back, and
                          one that was being made in a crash leaves nothing to the next

**File handles.** A queue that is idle has none: of its logs the store keeps those open that were written or read last
(`forebay.commitlog`). So there can be tens of thousands of queues. A push that finds no handle for its queue's log is
refused, and stored nowhere; a queue that could not be made leaves nothing behind.

**Numbers.** A message's seq is its seq in the log. A transaction that was not committed leaves a gap.
"""

from forebay.broker.stores.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore"]
