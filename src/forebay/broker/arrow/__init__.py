"""Messages as Arrow columns, in and out: for Spark, pandas, and programs that move many at a time.

**Out.** A range of seqs is a stream of record batches of `WIRE_SCHEMA`, in seq order: plain types, because Spark takes
no others. Messages that were deleted, and seqs that no message has, are absent. A `trace_id` or `headers` that the
message does not have is null. Batches hold about 1 MiB, or 65,536 rows: smaller records are put together, larger ones
are given as they are, so that no payload is copied for nothing. Nothing here is done message by message.

**In.** Rows are *staged*, then *committed*:

    stage   durable, invisible, known by an id. Any number per epoch, from any number of writers.
    commit  the stages that it names become messages, all at one moment, with the seqs that come next. Once for a
            producer, epoch and queue (and `write`, which tells several writes of an epoch to one queue apart). A second
            commit of the same rows changes nothing and gets the outcome of the first one; one of other rows is refused
            (`commits`). The rows are the same if their number, bytes and checksum are, in whatever order and stages.
    abort   what was staged and not committed is forgotten.

So a writer that is killed and started again writes its epoch once to each queue, whatever it had reached:

| killed                               | what is there           | what to do                                          |
|--------------------------------------|-------------------------|-----------------------------------------------------|
| while staging                        | nothing                 | stage again                                         |
| between stage and commit             | stages that are unseen  | stage again, or commit them; the rest expire        |
| in the middle of the commit          | nothing, or all of it   | commit again: it is done, or `already` was          |
| after the commit, before the answer  | all of it               | commit again: `already`                             |

Stages expire (`server.stage_retention`), and commits are forgotten later (`server.commit_retention`): an epoch that is
committed again after that would be taken for new.

**Payloads.** One that is JSON text is kept as JSON and given to HTTP consumers as such; any other is kept as bytes and
given to them as base64. `json_payloads` decides that for each row by itself.

**Ids.** A row with a `transaction_id` is a duplicate if its partition holds the id already, as with any push: it is
left out and counted. A row without one gets an id made from the stage's and its place.
"""

from forebay.broker.arrow.incoming import ArrowRefused
from forebay.broker.arrow.outgoing import WIRE_SCHEMA
from forebay.broker.arrow.staged_rows import STAGED_SCHEMA

__all__ = ["STAGED_SCHEMA", "WIRE_SCHEMA", "ArrowRefused"]
