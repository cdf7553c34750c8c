"""The broker: queues, partitions, groups, leases and dead letters, on a store.

A *queue* is a numbered log of messages. A *partition* is a part of it in FIFO order. A *group* has a cursor in every
partition and takes messages by *leasing* them: for a time they are its own, and no other consumer of the group gets the
partition.

`delivery` decides which consumer gets what, as pure functions. `store` says what storage has to do, in the values of
`messages`, `overview` and `bulk`; `stores/` holds the variants, and one contract suite holds them to the same
behaviour. `queue_rules` decides about messages that no consumer has yet; `sealed_store` encrypts in front of any store;
`arrow/` moves many messages at once; `room_work` lends a store's transaction to another room. `waiting` lets consumers
wait for messages.

**What is promised**

- A push that was answered is stored as durably as its receipt says, once, in the order of its partition.
- A reader never skips a message that commits late: seqs are given out in the order of commits.
- A message is delivered to a group again and again until it is finished, at most `retryLimit + 1` times, and then
  becomes a dead letter. Crashes and lease ends count as attempts.
- Messages of one partition are delivered in order to one consumer of a group at a time.
- A failed message gives the rest of its batch back: when it is due again, so are they, and they have lost no attempt.
- A claim that did not reach its client, because that had gone, counts for nothing and is available at once.
- A deleted message is not delivered any more, and no group waits for it. Its transactionId may be used again.
- A transaction of pushes and acks happens as a whole or not at all.

**Limits.** What is given out at once, by a pop, a page of messages or a page of dead letters, ends with the message
that brings its payloads to 64 MiB (`messages.ANSWER_BYTES_MAX`). What is held in memory for a consumer does not grow
with what it asks for, and one message is always given. Dead letters are replayed and purged in pieces, 500 at a time,
with the same limit.
"""
