"""What `forebay demo` shows: queues and Spark at work, a kill -9 in the middle, and every click accounted for.

A server and a worker run as processes of their own, as `forebay up` would start them, in a directory of their own. The
story, in the order of the modules:

- `clicks`: click events, a function of their number, and what plain Python makes of them;
- `pipeline`: server and worker, and `forebay.yaml` with three flows: clicks joined with users go to a queue; the same,
  counted per minute and region, to another queue; and those counts to Parquet;
- `story`: half of the clicks are pushed while Spark starts. The other half comes at a steady pace when results flow,
  and in the middle of it the server is killed with -9 and started again on the same data;
- `findings`: what is in the queues and in Parquet is read back and compared with plain Python;
- `result`: the figures, and what is wrong with them. Anything lost, duplicated or wrong is exit code 1.

**How the last minute ends.** A minute is told when an event comes that is later than it and the watermark. So the last
event pushed is an hour ahead. Its user is in no table, so it is counted nowhere.

**Latency** is from the moment a click was durable in its queue to the moment its joined form was in the next one, both
by the server's clock, over the clicks that were pushed while the flows ran: the kill is in it, the start of Spark not.

**Limits.** 1,000 to 2,000,000 clicks: they are compared in memory. Spark has 240 s to start and as long to give its
first results; later the demo waits as long as something new comes within 60 s, and then tells what is missing.
"""
