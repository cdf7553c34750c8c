"""Flows on parcels: Spark works through what dispatch has leased to it, in chains of actions, and keeps no state.

    lease ──▶ messages of its parcels ──▶ actions of one chain ──▶ staged rows ──▶ complete
              (tasks fetch Arrow)          (one Spark job)          (tasks send Arrow)

**One job.** A lease holds parcels of one flow, version and step, so that they are one job: results for all sinks, bad
records, and counts come out of the same pass (`chain_plan`). Where rows take two ways, what they have in common is kept
by Spark for the length of the job. Rows are staged by the tasks under the lease (`staging`); the driver gets the names
of the stages and the counts, and nothing else.

**One commit point.** `complete` makes the stages messages, moves the parcels and writes their history in one
transaction of the server. What a killed driver has staged is never named, and expires; its parcels are another
worker's when the lease ends. So results in queues are there once, whatever is killed. There is no checkpoint.

**Sinks.** A queue: exactly once. An export: once into the destination's outbox, and the parcel is EXPORTING until the
destination has taken its rows. A table: before the completion, so at least once: a worker that is killed between the
two writes its parcels' rows again; a table of files that is partitioned by `did` is replaced parcel by parcel instead.

| what fails | what follows |
|---|---|
| a record: an action raises, SQL fails on a value, a sink refuses it | it is searched for and set aside, `on_error` |
| an action, on every record | the parcels are in ERROR with the traceback; `retry` or a person resumes them |
| messages are gone: damaged, cleared, deleted with their queue | its parcel alone is in ERROR with the numbers |
| the same, with `failOnDataLoss: false` | the rest is worked on, and the completion says what is missing |
| what an action asks for is away (`ConnectionError`, `Transient`) | queued again after a pause, for ever |
| the job takes longer than its actions may | it is cancelled; the parcels are in ERROR, as above |
| the driver is killed | the lease ends after a minute; other workers have the parcels |
| an executor is lost | Spark runs its tasks again; what they staged before is not named |
| the worker is frozen past its lease | its completion is refused, and what it staged is dropped |
| the server is away | tasks and completion ask again until the lease is over |
| the flow does not compile | it is not defined, and its report says why; as it was defined before, it goes on |
| what a parcel was cut for does not compile here | the parcel is in ERROR with the cause |

**Letters** say what their payload is and which message it is of, as far as that is certain (`message_marks`), so that
`forebay flows retry` can send a record to the step that it failed in.

**Limits.** A job has the parcels of one lease: at most `worker.lease_messages` messages (or one parcel). A task has at
most 100,000 messages, with a local master 500,000. A search sets at most 1,000 records aside. A chain's job may take
as long as the time limits of its actions together, ten minutes each if they name none.
"""
