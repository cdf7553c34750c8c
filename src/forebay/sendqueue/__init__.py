"""The send queue: batches on their way to one destination, kept until the destination has confirmed them.

A receiver or a metrics buffer pushes batches; the workers of an exporter claim them, send them, and confirm. Taking is
claiming: a batch leaves the queue when it is confirmed or, by a policy that was chosen, dropped and counted. A worker
that cannot deliver a batch releases it, and the batch is back at its old place in line.

Modes
-----
| mode | a batch waits in | kill -9 loses | a graceful stop loses |
|---|---|---|---|
| `memory` (default) | memory, as it was pushed: nothing is serialised | what is in memory | nothing |
| `disk` | FastQueue: memory for a moment, then a chunk file | the last `meta_sync_interval` (1 s) and sync | nothing |
| `hybrid` | memory up to 80 % of its limits, FastQueue above | what is in memory, a second of what spilled | nothing |

What a disk refuses waits in memory, in every mode: of a hybrid queue in its memory part, of a disk queue, and when that
is full, in the failover queue (`forebay.export.queue_feed`), up to `failover_max_size`. Kill -9 loses that too.

On a graceful stop the exporter goes on sending for a stated time; what is left then is written to the queue's
directory, in every mode, and is sent first after the next start. A mode can be changed between two starts: whatever is
in the directory is found.

Limits
------
`max_size` batches and `max_bytes` bytes that are not confirmed; claimed ones count. A push beyond them raises
`SendQueueFull`, and the exporter's `full_behavior` decides: `drop_oldest`, `drop_newest` or `block`. A batch that is
larger than `max_bytes` by itself is refused for good. While 64 batches wait for their next attempt no further ones
are claimed, so that a destination that is away does not pull a disk queue into memory.

Order
-----
Memory and disk queues are first in, first out. A hybrid queue is drained memory first, then disk, as the originals are:
batches in memory may overtake older ones on disk. With `order: fifo` they may not: once a batch has spilled, all go to
disk until the disk is empty again; what a stopping process leaves in memory is kept in front of it (`first/`). For a
destination that needs order (remote write, a queue, a file) a hybrid queue is `fifo` whatever its settings say. With
several workers, batches are under way side by side in any mode. What went through the failover queue while a disk
refused comes behind what was pushed to the queue meanwhile.

Rooms
-----
`queue` the protocol; `queues/` its variants, one contract suite for all; `disk/` what FastQueue is made of, with the
formats (`docs/internals/fastqueue.md`); `opening` of a queue in a mode, from what is there; `spilling`, `breaker`,
`backoff`, `sizing`, `scaling` decisions without I/O.

Failures
--------
| what happens | what the queue does |
|---|---|
| kill -9, power cut | opening reads one meta file and scans what was written after it; a torn end is kept aside |
| disk full, write error | the push is refused with the reason; nothing that was accepted before is touched |
| the same in mode hybrid | batches stay in memory while that has room; then the push is refused |
| fsync fails | what was not durable is written again, to a new chunk; the queue says so until that has worked |
| damaged block | logged with its place, counted as dropped, copied to `quarantine/`; reading goes on behind it |
| meta file lost or unreadable | every chunk is read; batches that were confirmed may be sent again, none is lost |
| chunk lost | the batches in it are lost, counted and logged; reading goes on behind it |
| directory removed while in use | made again within `meta_sync_interval`, with what memory and open chunks hold |
| second process on the same directory | refused, with the name of the first |
"""
