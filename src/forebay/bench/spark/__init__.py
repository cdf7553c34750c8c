"""Spark on queues beside Spark on files: in one session, over HTTP on loopback, 1M messages of 200 bytes.

| figure                                   | beside                                                     | goal        |
|------------------------------------------|------------------------------------------------------------|-------------|
| a queue to noop                          | Spark's own parquet reader, the same rows                  | 0.7         |
| a queue to noop                          | a Python data source that yields tuples, the same rows     | 2.5         |
| `payloadAs=json`, no bad row             | from_json in the query, the same rows                      | 0.8         |
| `payloadAs=json`, 1 % bad rows           | from_json in the query, the same rows                      | 0.8         |
| `payloadAs=json`, 10 % bad rows          | from_json in the query, the same rows                      | 0.8         |
| a frame into a queue, durable            | 300,000 rows/s                                             | 1           |
| a frame into a queue, durable            | the same frame into parquet                                | none        |
| a SQL flow, queue to queue               | the same SQL, parquet to parquet                           | 0.6         |
| push to result, 1,000 messages/s         | 1,000 ms, the median                                       | at most 1   |
| `forebay up`, idle                       | 10 % of one core                                           | at most 1   |

**Rows.** A message is a JSON object of 200 bytes that Snappy cannot shrink much. The queue is filled through staged
Arrow; the parquet files are written from the queue by Spark, so they hold the same rows in the same columns.

Bad rows are cut off in the middle. The queues of the JSON figures have a quarter of the messages.

**Which process does what.** One local session in this process does all batch work, for both sides in turns. The server
is a `forebay serve` of its own on the embedded store, and shares the cores with Spark: parquet has no server to feed. A
flow runs as the worker runs it, as a stream with a checkpoint that ends when everything is read (`AvailableNow`), from
its start to its end; its peer is a plain batch job without checkpoint. The source that yields tuples fetches the same
bytes from the same server and differs in what it hands to Spark.

**Push to result.** `forebay up` runs a flow of the same kind with its default trigger. Messages are pushed by the
clock, 20 every 20 ms, whether or not the last ones came through, and each is counted from the moment it was due until
a consumer of the sink queue has its result. The consumer and the producer share the cores too.

**Idle** is the CPU time of `forebay up` and of all its processes, Java among them, while nothing is pushed.

**What it does not say.** There is no network here and no cluster, and files are in the page cache. A figure of
`--quick` says that the suite works, no more.

`suite` wires it; `figures_*` are the lines; `rows` makes the messages; `tuple_source` is the peer of that name;
`up_process` is `forebay up`. This package, that of `bench flows` and the room `spark` are the only ones that import
PySpark.
"""
