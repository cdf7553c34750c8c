"""Ingest: pushes live on when the store does not, in order and once.

A push takes one of three ways (`intake`):

- **Direct**, the usual one: to the store, answered with the store's receipt.
- **Failover**: the store is away, too slow, or in push maintenance. The messages go to `failover.buf`, are synced,
  and are answered as `buffered` with receipt `buffer`. When the store is back they are drained into it.
- **QoS 0**: the producer requested it with `bufferMs` / `bufferMax`. The messages go to `qos0.buf`, unsynced (receipt
  `os`: they survive a killed process, not a power cut), and are stored in few large writes a moment later.

**Promises.** What was answered as accepted is stored once, whatever is killed in between. In a partition the order is
that of acceptance: while it has messages in the failover file, later ones go behind them (`backlog`, "the fence");
other partitions are not held up. QoS 0 messages keep their order among themselves only. An answer is the truth: a
refusal means that nothing will come of the message later, except where it says that the outcome is unknown.

**Once.** Every message has its transactionId before the first attempt, and a drained one is pushed with it, so that a
message that is there already is recognised: after a commit whose answer was lost, after a kill between the store's
commit and the note of it. Stores keep ids as long as messages; the position file keeps what was drained from being
pushed again when a short retention has already removed it.

**Files** (`buffer_directory`, `failed_directory`, `positions`, `frames`), in one directory::

    qos0.buf  qos0_processing.buf            being appended to; being drained
    failover.buf  failover_processing.buf
    *_processing.pos                         how far the drain has come
    failed/<kind>_<time>.buf (and .pos)      what the store refuses although it is there (a full queue): retried
    failed/<kind>_<time>.damaged             bytes that hold no event, set aside: never deleted, never retried
    append.lock  drain.lock

A file is a run of frames: a length (u32, little-endian) and that many bytes of JSON (`event`). A frame that is cut
short or damaged costs itself alone: the scan goes on at the next whole one.

**Protocol.** Appending: take `append.lock`, write all waiting frames at the end in one call, give the lock back, sync
(failover only), answer. A write that is cut short is taken back before the lock is. Rotating, by the one process that
holds `drain.lock`: take `append.lock`, rename `x.buf` to `x_processing.buf`, sync the directory; the next append
makes a new `x.buf`, with a directory that is synced before anything in it counts. (QoS 0 syncs nothing anywhere.)
Draining: read some thousand events, push them in one request, note the position, go on; at the end remove the file.
Failed files come first, oldest first, then the processing file, then the next rotation. What has to move to `failed/`
and finds no room there (`refused_events`) stays where it is: its file is not removed and its position not passed until
the move succeeds, while all other events of the file are stored.

**Several processes** may append to one directory; the one that holds `drain.lock` drains for all. A process knows only
its own events: while there are others', it holds all partitions back, because it cannot tell which are concerned.

**The last step of a drain.** A producer that never pauses would keep its partition fenced for ever. So once the store
is back and little is left, a push to a fenced partition waits for the drain, for a moment, instead of going behind.
When a push waited in vain, none waits for a while: the drain then has a reason to take long.

**Deleting a queue** waits in the same way for its messages in the files, those of QoS 0 too, and is refused while they
cannot be stored: they would make the queue again. What the queue itself refuses is not waited for.

**Health** (`health`). A failed or timed-out push opens the breaker: pushes go to the file at once and none pays the
time-out again. The drain itself is the probe that closes it, because a database may answer and yet refuse to write.
Where nothing waits, or nothing is drained (push maintenance), an answer is enough: health is the store's, whichever way
pushes take.

==============================================  ======================================================================
what fails                                      what happens
==============================================  ======================================================================
store away, frozen, read-only, no permission    failover within `store_timeout`; drained when a probe succeeds
commit without an answer                        failover with the same id; the drain finds it stored, or stores it
buffer disk full, or its limit reached          507 with `Retry-After`; what was written of it is taken back
buffer file cannot be made, locked or opened    507 if the disk is full, else 503; nothing was accepted
sync of the buffer fails                        503, outcome unknown: the bytes may be drained all the same
process killed while appending                  unanswered; a torn frame is set aside and counted
process killed while draining                   the chunk is pushed again and recognised by its ids
power cut                                       failover events are there; QoS 0 events of the last seconds may not be
a queue refuses (full, no key)                  its events move to `failed/`, and its partitions stay fenced
a file is no buffer file                        its bytes are set aside in `failed/`, reported, never deleted
`failed/` takes nothing, or is not synced       what was written there is taken back; its file stays and is tried again
both store and buffer unable                    507 or 503; nothing was accepted
==============================================  ======================================================================

**Limits.** `max_bytes` and `max_events` of both kinds together; a frame up to 64 MiB. Payloads of queues that may be
encrypted are sealed before they reach the disk, if the server has a key. Servers on different machines (different
directories) fence their own messages only: a producer that changes servers during an outage is ordered by neither.
"""

from __future__ import annotations

from forebay.ingest.intake import Intake
from forebay.ingest.limits import BufferLimits

__all__ = ["BufferLimits", "Intake"]
