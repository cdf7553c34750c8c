"""Dispatch: work waits for workers, warm or cold, per action class; leased, fenced, and never lost.

A flow's source is cut into *parcels*: ranges of messages, references and never payloads. A parcel goes through the
flow's *steps*. At each step it waits in the queue of the step's *action class* until a worker leases it, works, and
completes the lease; then it goes on to the next step, or is finished.

    queue ──cut──▶ QUEUED (warm) ──lease──▶ LEASED ──complete──▶ COMPLETE | FILTERED ──▶ next step, or finished
                     ▲      │                  │
                     │      │                  ├─ last step, with rows for a destination ──▶ EXPORTING ──▶ COMPLETE
         refill, oldest   full: cold           ├─ failed ──────▶ ERROR ──due, or resumed──▶ QUEUED
                     │      ▼                  └─ expired, or given back ──▶ QUEUED, at its old place
                    COLD_QUEUED

**What is the authority.** `parcel_flows`, in the store's own database: one row per parcel and step. Everything else is
derived: `cold_queue_entries` and `action_queues` are kept by its triggers, the warm tier is a hint about order.

**One commit point.** All that changes together is one transaction of the store (`forebay.broker.room_work`): the cut
position with its parcels; a lease with its rows; a completion with the commit of staged rows, the parcels that move on,
what is queued next, and their history. So a result that goes to a queue is there exactly once, whatever is killed.

**Nothing is missed in silence.** A range knows the identity of its queue and what was gone when it was cut. What is
gone before it is cut is found by the cut (`ledger/cut_position`), a queue that is another one by the lease
(`ledger/replaced`), what is gone within a queue by the worker, whose reads the server refuses. See decision 0041.

**Order.** A parcel's place in line is given when it is cut and kept through steps, retries, expiries and tiers. Within
a flow and class the lowest place is leased first. Several leases may hold parcels of one flow at the same time.

**Records alone.** A row that failed at a step goes through it again without its parcel (`ledger/records`): it is
committed to the queue in front of the step together with the parcel that reads it, once by its key.

**Fair.** Over classes, then over flows within a class; a flow with a million parcels does not keep another one waiting.

| limit | default | at the limit |
|---|---|---|
| parcels of a class that wait warm | 5,000 | further ones wait cold, until 80 % and none is cold; refilled below 90 % |
| lease | 60 s, prolonged by heartbeats every 10 s | parcels are queued again, the attempt counts |
| attempts of a step | 3 | ERROR, with its history; retry, policy or a person resumes it |
| parcels of one lease | 1,000 | the rest waits for the next |
| finished parcels and their history | 13 days | removed |
| messages that an unfinished parcel needs | | retention spares them, and says so |

| fault | what follows |
|---|---|
| a worker is killed | its lease expires; its parcels are queued again at their old place |
| a worker is frozen past its lease and completes then | refused (409 `LeaseLost`), its staged rows are dropped |
| the answer to a completion is lost | the same completion again is known by the lease and changes nothing |
| the server is killed | at any step: the transaction happened or did not; the warm tier is rebuilt from the database |
| the warm tier is away, emptied or evicts | leases ask the database at once; classes are rebuilt within seconds |
| the database is away | leases and completions are refused with 503; workers go on when it is back |
| a destination is away | its parcels are EXPORTING until the export's group has passed their rows |
| the queue of an export is deleted meanwhile | the parcel goes into ERROR; resumed, its last step runs again |
| the answer to records that start is lost | sent again in whatever company, they are known and start nothing |
| the source queue is made again | a loss, as below; no parcel of the old queue reads the new one |
| messages are gone: damaged, cleared, with their queue | the source is STOPPED, the parcel in ERROR, with the numbers |
| the same, with `failOnDataLoss: false` | the flow goes on without them; log, history and numbers say so |
| the clock is set back | leases end no later than they last; joins and retries likewise |

**Several servers** on one PostgreSQL: each leases, cuts, refills and expires; rows are locked in one order (classes by
name, then flows, then parcels), so they follow each other. The in-process warm tier belongs to one server: a parcel
that another server has leased is found out by the claim. Valkey is shared.

The modules: `definition` and `values` (arguments and results), `views` (what it shows), pure decisions (`checking`,
`tiering`, `fairness`, `routing`, `rates`, `retries`, `schedule`, `cut_plan`, `health`), `warm` and `warms/` (the warm
tier), `ledger/` (work on the tables, by subject; its statements are in `sql/`), `taking`, `waiters` and `leasing`,
`record_starts` (what a person sends again), `sources`, `export_watch`, `hold_sweep`, `warm_watch` and `upkeep` (what
runs by the clock), and `dispatcher`, which puts them together.

The laws: decisions in `tests/unit/dispatch/`, everything else in `tests/contract/test_dispatch_*.py`, on every store
and warm tier. `Dispatching` of `tests/fixtures/dispatch_steps.py` is the dispatch that those turn by hand.
"""
