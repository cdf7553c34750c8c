"""The journey: every stage at one moment, over the last hour, and what is wrong now, for the web page.

    ingest ──▶ queues ──▶ dispatch ──▶ spark ──▶ export

| module | does |
|---|---|
| `figures` | what a look holds: values, and nothing that asks |
| `gathering` | takes a look: asks store, dispatch, buffers and destinations, each in its own way |
| `rates` | two looks to rates |
| `recorder` | looks every ten seconds, and keeps the last hour |
| `troubles` | a look to plain sentences: what is wrong, and on which page it is mended |

**What a stage's numbers are.** `waiting` is what has come to the stage and not left it; `oldest` how long the oldest of
it has waited; `at risk` what is in memory or in a buffer file only, so that it is on no second disk and in no database.

| stage | in | out | waiting |
|---|---|---|---|
| ingest | messages pushed to this server, and items of its receivers | | messages in buffer files |
| queues | messages stored, on all servers | messages that the slowest group has finished | messages that it has not |
| dispatch | messages cut into parcels | | parcels that wait, warm, cold or for others to join |
| spark | | rows that flows have read | parcels under a lease |
| export | | items that destinations of this server confirmed | batches in send queues, messages behind exports |

Internal queues (`.flow.…`, `.export.…`) count where they belong, as parcels or as messages behind exports.

**Limits.** A look is shared by all requests within two seconds. The history has 360 samples of each figure, and
of at most 500 queues: those that had the most waiting when they were first seen go first. It is kept in memory, begins
anew with the process, and takes 6 MB at most; longer is Prometheus's business. Where a look takes long, looks are taken
less often, so that samples take a fiftieth of the time at most.

**A store that is away** gives no figures of queues, dispatch and flows: the last ones stand, marked as old. Buffers and
destinations are shown as they are.
"""
