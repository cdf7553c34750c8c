"""What `forebay demo` shows: queues and Spark at work, everything killed in the middle, and every click accounted for.

A server and a worker run as processes of their own, as `forebay up` would start them, in a directory of their own. The
story, in the order of the modules:

- `clicks` and `metrics`: click events and OTLP requests, functions of their number, and what plain Python makes of
  them;
- `pipeline`: server and worker, and `forebay.yaml` with five flows. On parcels: clicks are parsed, enriched in Python
  (`demo_actions`) and scored by a slow step of its own, and go to an HTTP destination and a queue; metrics lose a
  label, are added up, and leave by remote write. As streams: clicks joined with users go to a queue; the same, counted
  per minute and region, to another queue; and those counts to Parquet;
- `destination`: the HTTP server in this process to which results go, which can be away;
- `producer`, `faults`, `story`: half of the clicks are pushed while Spark starts. The other half comes at a steady pace
  when results flow, and in the middle of it the destination goes away for ten seconds; meanwhile the server is killed
  with -9 and started again on the same data, and so is the worker with all of its Spark;
- `findings`, `audit`: what is in the queues, in Parquet and at the destination is compared with plain Python, parcels
  are counted by state, and `forebay audit` counts every message of every queue;
- `result`: the figures, and what is wrong with them. Anything lost, duplicated or wrong, a parcel that is not COMPLETE,
  or an audit that is not balanced, is exit code 1.

**Once, and at least once.** In queues and in Parquet a click has to be once. A destination may get a request again
whose answer was lost; it knows a click by its place in the outbox, and counts it once.

**How the last minute ends.** A minute is given out when an event comes that is later than it and the watermark. So the
last event pushed is an hour ahead. Its user is in no table, so it is counted nowhere.

**Latency** is from the moment a click was durable in its queue to the moment its joined form was in the next one, both
by the server's clock, over the clicks that were pushed while the flows ran: the kills are in it, the first start of
Spark not.

**Limits.** 1,000 to 2,000,000 clicks: they are compared in memory. Spark has 240 s to start and as long to give its
first results; later the demo waits as long as something new comes within 60 s, and then tells what is missing.
"""
