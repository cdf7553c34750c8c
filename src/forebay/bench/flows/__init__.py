"""`forebay bench flows`: flows on parcels, beside Spark on files, streams, one another, and a clock.

| figure | beside | goal |
|---|---|---|
| a SQL flow on parcels, queue to queue | the same SQL, parquet to parquet | 0.6 |
| the same | the same flow as a stream | 0.9 |
| 50 flows of 3 actions on one worker | one flow with all of their messages | 0.67 |
| Python processes of Spark with 50 flows | with one flow, and 2 more | at most 1 |
| push to destination, 1,000 messages/s | 1,500 ms, the median | at most 1 |
| memory of the server: a burst goes cold and drains | a tenth of it, which stays warm | at most 1.5 |
| memory of the worker, all of its processes | the same | at most 1.5 |

**Rows** are those of `bench spark`: JSON objects of 200 bytes, parsed, filtered to a half, and projected.

**Throughput.** One local session in this process does all work, for all sides in turns, and shares the cores with the
server. Lanes with a worker's defaults run all the time, as in a worker; a round begins when flows are defined and ends
when their last result is in its queue, so that cutting, leasing and completing are in it. A stream runs from its start
to its end (`AvailableNow`), as in `bench spark`. The second of the three actions is in Python, a record at a time.

**Push to destination.** `forebay up` runs a flow on parcels into an HTTP destination, which is in this process.
Messages are pushed by the clock, and each is counted from the moment it was due until a request that holds it has
arrived.

**The burst.** 20 parcels may wait warm. The small load is as many, the burst ten times as many, pushed at once. Memory
is the largest that is seen until the last parcel is finished: resident bytes, those that processes share divided
between them. The worker has Java and Spark's Python processes in it. A burst of which nothing went cold is an error.

**What it does not say.** There is no network here and no cluster. A figure of `--quick` says that the suite works.

`suite` wires it; `working` runs flows in this process; `figures_throughput`, `figures_delivery` and `figures_burst` are
the lines; `actions` has the action in Python.
"""
