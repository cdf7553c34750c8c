"""`forebay bench export`: the way out beside a bare loop that sends the same bytes, and beside the sizing formula.

| figure | beside | goal |
|---|---|---|
| OTLP batches of 50 KiB to a sink | a bare aiohttp loop that sends the same prepared bytes | 0.6 |
| the same, a sink that takes 50 ms, 8 workers | workers / latency = 160 batches/s | 0.95 |
| pipeline split, gzip of 256 KiB batches | without split | 1 |
| OTLP in, remote write out | 100,000 data points/s | 1 |
| resident memory, OTLP in, remote write out, a sink that takes 1 s | idle, and the limits of the settings | at most 1 |
| a queue to an HTTP destination, batches of 500 | 50,000 messages/s | 1 |

The sink is a process of its own that reads requests and answers 200, nothing else (`sink`). The exporter runs in this
process with its send queue in memory; bodies are compressed with nothing, so that the loop and the exporter send the
same bytes. OTLP in is a receiver over HTTP with protobuf requests of 1,000 data points from a third process.
"""
