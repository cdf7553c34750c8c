"""Receivers: telemetry in, over OTLP (HTTP and gRPC) and Prometheus remote write. Off unless they are configured.

    SDK, collector, Prometheus ──▶ receiver ──▶ a queue of the broker (each request is a message; with a receipt)
                                          └──▶ metrics buffer ──▶ the send queue of a destination

In a queue the partition is the signal: `metrics`, `traces`, `logs` or `remote_write`. `{signal}` in the name of the
queue stands for it too: `queue:otlp-{signal}` keeps signals in queues of their own, as an export of telemetry needs it.

A request is carried on as the bytes it came as, decompressed; it is parsed once, to know that it is one and how many
items it holds. The answer is given when the request is accepted: stored, or in the send queue.

| what came | HTTP | gRPC |
|---|---|---|
| accepted | 200 (remote write 204), header `Forebay-Receipt` | OK |
| no place for it now | 429, `Retry-After: 5` | RESOURCE_EXHAUSTED with RetryInfo |
| the store or its disk is away | 503, `Retry-After: 5` | UNAVAILABLE with RetryInfo |
| no request, truncated, too deep, wrong JSON | 400 | INVALID_ARGUMENT |
| too large, also once decompressed | 413 | RESOURCE_EXHAUSTED, without RetryInfo |
| a type or encoding that is not known | 415 | UNIMPLEMENTED |
| a web page sent it (it has an `Origin`) | 403 | |
| a body that does not arrive in time | 408 | |
| a signal that the destination does not take | 404 | UNIMPLEMENTED |

A receiver that feeds a remote-write destination directly knows what has no form there (sums and histograms of deltas,
exponential histograms, metrics without a name): the request is accepted, and the answer is a partial success of OTLP
with the number of these data points and the reason. They are left out when the batch is converted, and counted there
(`export_rejected_items_total`). What a destination at the other end rejects later is known to its metrics alone, as is
what a queue's export cannot convert: the answer was given long before.

Requests are counted by status in `receiver_requests_total`, gRPC's by the HTTP status of the same line. What aiohttp
or gRPC refuse by themselves (an unknown path; over gRPC also what is too large or in an unknown encoding) is not.


| limit | value |
|---|---|
| a request, decompressed | `receivers.body_size` (16 MiB) |
| all requests together, until they are answered | `receivers.in_flight_size` (256 MiB); beyond it 429 |
| depth of protobuf and of JSON | 100 |
| time for a body to arrive | 60 s |

Without keys a receiver listens where it is set to; it takes data and gives none away.
"""
