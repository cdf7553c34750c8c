"""The commit log: messages in numbered order on disk, still there after any crash.

It is the storage of the embedded broker: one log per queue, one directory per log, one process at a time. Everything
else in Forebay that says "durable" without a database means: `CommitLog.append` has returned.

**What it promises**

- *Durable on return.* `append` returns after the messages are written and fdatasynced. Appends that wait at the same
  time share one sync (`group_commit`).
- *All or nothing.* Of an append that failed or was cut short by a crash, either every message is there or none.
  After a crash an append that was never answered may be there; after an error in a running process it never is, except
  where the error says that its outcome is unknown.
- *In order, once, without gaps.* Messages are numbered 1, 2, 3 … in the order of their commits. Numbers are not used
  twice. Only damage and salvage leave gaps, and those are reported to the number.
- *Opening takes the same time however much is stored.* One manifest is read, and only what was written behind it is
  scanned (`recovery`).
- *Nothing unreadable is deleted.* It is set aside in `quarantine/`, and at most the damaged record is missing (`scan`,
  `salvage`).

**How it is stored**: `layout` says where the files are, `block` describes a record byte by byte, `manifest` the file
that lists the segments, `docs/internals/` shows both with worked examples.

**What happens when**

| trouble                               | an append                      | a read           | remedy                  |
|---------------------------------------|--------------------------------|------------------|-------------------------|
| process killed, power cut             | not answered: there or not     | goes on          | none: opening recovers  |
| disk full                             | `DiskFull`, nothing changed    | goes on          | free space; it resumes  |
| failed write or fsync                 | `SyncFailed`, segment sealed   | goes on          | check the disk          |
| the same, and it cannot be sealed     | the same, outcome unknown      | goes on          | check the disk          |
| damaged record                        | goes on                        | `SegmentDamaged` | `on_damage=`, or salvage|
| damaged manifest                      | does not open                  | does not open    | `forebay log salvage`   |
| opened by a second process            | `LogLocked` names the owner    | does not open    | stop one of them        |
| range that retention removed          |                                | `RangeGone`      | read from `first_seq` on|

**Limits**

| what                 | limit                                          | at the limit                      |
|----------------------|------------------------------------------------|-----------------------------------|
| one append           | 64 MiB and 1,048,576 messages                  | `BatchRefused`                    |
| one record           | `record_bytes` (4 MiB), or one append          | the next group begins             |
| one segment          | `segment_bytes` (512 MiB), or one group        | sealed, a new one begins          |
| zeros written ahead  | the segment's size so far, up to 1 MiB; none   | cut off at a roll and at `close`  |
|                      | by records above 341 KiB                       |                                   |
| segments in a log    | 4,194,304                                      | refused when read                 |
| memory of a reader   | `read_chunk_bytes` (1 MiB), or one record      |                                   |
| kept open for reads  | one segment, and 128 KiB of it, in 64 logs     | the log read longest ago lets go  |
| kept open for writes | one segment, in a quarter as many logs as the  | the log written longest ago lets  |
|                      | process may have files open, 64 to 4,096       | go                                |
| seek marks in memory | 256 segments                                   | the least used is found by walking|

**What it does not do**: know queues, partitions, groups or leases (the broker's), delete single messages (whole
segments only), encrypt (payloads arrive encrypted), replicate.
"""

from forebay.commitlog.log import CommitLog
from forebay.commitlog.recovery import RecoveryReport
from forebay.commitlog.state import LogOptions

__all__ = ["CommitLog", "LogOptions", "RecoveryReport"]
