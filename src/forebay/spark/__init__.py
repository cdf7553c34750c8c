"""Spark on queues: a session on any master, a queue as table and stream, and exactly-once writes into queues.

    from forebay.spark import spark_session

    spark = spark_session(url="http://127.0.0.1:6632")
    clicks = spark.readStream.format("forebay").option("queue", "clicks").option("group", "report").load()
    counted = clicks.groupBy("partition").count()
    spark.read.format("forebay").option("queue", "clicks").option("startingOffsets", '{"seq": 1000}').load().show()
    clicks.select("payload").writeStream.format("forebay").option("queue", "copies") \\
        .option("checkpointLocation", "/data/checkpoints/copies").start()

This is the only room that imports PySpark. It talks to the servers over HTTP, from driver and executors, with the
standard library and PyArrow alone: that is all an executor needs, the package itself is sent to it.

**Reading.** An offset has the next seq, and says of which queue (`positions`). A batch is a range of seqs; it is split
into ranges, and each task fetches its own as Arrow and hands it to Spark without looking at rows. Everything below the
server's `nextSeq` never changes, so a batch that is read again has the same rows, unless messages were deleted.

**A table** is a snapshot: identity and seqs are fixed when the frame is loaded. Spark asks the source for its schema
then, and keeps the object for all queries on the frame. A Connect session plans every query anew, from the options: its
reader fixes them in `load` (`connect_reader`).

**Nothing is missed in silence.** The server knows what retention removed and what was lost. The driver asks for it with
every batch, and each task with its range; `failOnDataLoss` decides whether the query ends or goes on and logs it. What
is deleted by itself, or never was (a transaction that was refused), is no loss. A stream holds back the retention of
finished messages (`holdRetention`).

**Flows** (`forebay.flows`) are run here: on parcels by `parcels/`, as streams by `flow_plan` and `flow_runner`; the
actions that come with Forebay are in `builtin/`.

**Writing.** Tasks stage rows, the driver commits the stages by (query, batch, queue). See `sink`.

**What happens when**

| what fails | what follows |
|---|---|
| a server is killed while a task reads | the task asks again, here or at another URL, behind the last row it has |
| a server is away longer than `retryTimeout` | the query fails; started again, it repeats the batch |
| retention removes what was to be read | `failOnDataLoss`: the query fails with the seqs, or goes on and logs them |
| the queue is deleted and made again | `failOnDataLoss`: the query fails with both, or begins anew and logs it |
| a task or an executor dies | Spark runs the task again; what it staged before is never committed |
| the driver dies before the commit | nothing was visible; started again, the query repeats the batch |
| the driver dies after the commit | the same, and the server answers that this (query, batch) is committed already |
| a batch repeated has other rows | the commit is refused, and the query fails with the numbers (`onDifferentRepeat`) |
| the answer of a commit is lost | it is sent again, with the same end |

Exactly once holds for as long as the server remembers commits (`server.commit_retention`) and the checkpoint is kept.

**Limits.** A task sends stages of 16 MiB (`maxBytesPerStage`); it holds two in memory. A reading task holds one batch
of the server. One task has at most 100,000 messages, with a local master 500,000 (`maxRecordsPerPartition`). A server
may be silent for 120 s in the middle of an answer. The group's cursor is moved when Spark looks for the next batch, so
that a query which is stopped may leave it one batch behind, and is not part of any guarantee.
"""

from forebay.spark.builtin.json_parsing import json_columns
from forebay.spark.java import Java, JavaNotFound, find_java
from forebay.spark.options import OptionsRefused
from forebay.spark.queues import MessagesGone, MessagesMissing, QueueIsAnother
from forebay.spark.server_calls import ServerRefused, ServersAway
from forebay.spark.session import register, ship, spark_session, start_session
from forebay.spark.source import ForebaySource

__all__ = [
    "ForebaySource",
    "Java",
    "JavaNotFound",
    "MessagesGone",
    "MessagesMissing",
    "OptionsRefused",
    "QueueIsAnother",
    "ServerRefused",
    "ServersAway",
    "find_java",
    "json_columns",
    "register",
    "ship",
    "spark_session",
    "start_session",
]
