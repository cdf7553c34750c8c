"""HTTP: the broker as its users see it, on `/api/v1`, in Queen's protocol; `docs/guides/from-queen.md` says how far.

A request's way through this room, and what is done on it:

| step | module |
|---|---|
| one connection: requests in line, answers in order, at the client's pace | `http_protocol`, `response_writer` |
| all connections: one timer, an orderly end | `connections`, `server` |
| bytes to a request, an answer to bytes | `request_parser`, `response_bytes` |
| find the operation by method and path; turn what went wrong into an answer | `app`, `routing` |
| read the body within its limits, decompressed if need be | `exchange`, `body_stream` |
| so much memory for all bodies and answers together; back to the system | `memory`, `response_sizes`, `heap` |
| one decode into a struct; names, sizes and numbers judged, the faulty field named | `bodies`, `parameters` |
| the same beside the event loop, for what is large | `large_bodies` |
| do it: ask the store, wait for messages, wake waiters | `routes/`, one file per resource |
| one encode of the answer | `responses` |
| errors ↔ HTTP status, one table | `problems` |
| which caller it is: key or session; keys in force, wrong keys | `gate`, `access`, `keyring`, `keys_file` |
| what the caller may do: scopes, queue patterns | `callers`, `routing`, `reach` |
| what web pages may do, and load | `browsers`, `html_responses` |
| admin actions | `audit_trail` |
| what `/metrics`, ledger and page show | `queue_figures`, `latencies`, `ledger`, `journey/`, `page/` |
| the description of all routes | `openapi`, `reference` |
| beside the requests: flags, losses, retention, disks, history | `service`, `retention`, `clock_watch`, `disk_watch` |

**Payloads are spliced.** A payload is JSON text on the way in and the same bytes on the way out: it is checked to be
JSON (it has to be, or the answer that carries it would not be), and never parsed into values or written anew. So a
number with thirty digits, a key that stands twice and the blanks of the producer all arrive as they were sent. Bytes
come as base64 in a string, marked with `encoding: "base64"`, are stored as bytes, and leave the same way.

**Limits**, each with its answer. Body 64 MiB, and as much once decompressed (413); 10,000 items in a request, and 64
queues in a transaction (400); payload 10 MiB, what a trace notes 64 KiB (413); names and ids of 1 to 255 characters
without NUL, and without `.` or `..` between slashes (400); long poll one hour (400); 100 query parameters (400); head
of a request 64 KiB, and as much for trailers (431). A body is refused as soon as it passes the limit; what is over it
is read and thrown away, so that the sender gets to see the answer. Of a body that no handler reads yet, and of requests
that come before the last was answered, some are taken (64 KiB, 8 requests, or what one read brings); then the
connection is not read until that changes. While a long poll waits, more is taken behind it (1 MiB, 64 requests), so
that its client's end is seen; when that is not enough either, the poll is over with 204: no client waits unwatched. A
client that owes us the rest of a request, or the next one, or the taking of its answer, and does not move for 75
seconds, is closed. An answer with messages ends with the one that brings its payloads to 64 MiB, whatever was
requested; it has one at least. So a pop of large messages gets fewer of them than its `batch`, and a page fewer than
its `limit`: go on at `nextSeq`, or with the `offset` behind what came. All requests together have 512 MiB for bodies
and answers (`server.memory_size`): a body above 1 MiB for which there is no room waits up to 30 seconds for it, and
then gets 503 `busy`; an answer takes its room before its messages are claimed, and holds fewer of them when there is
little left. While a request waits, clients that move less than 256 KiB a second lose their room. A body that is not
there after two minutes (`server.body_time`) is 408.

**HTTP/1.1 and 1.0**, plain or in TLS; no HTTP/2, and no upgrade to anything: such a request is served as it is. What
cannot be parsed, or could be parsed in two ways, is answered with 400 after everything that came before it, and the
connection is closed; a request that breaks before its handler began never begins. A client that closes its sending side
(a half-close) is answered what it had sent whole, and then closed; what came in part is not begun. In TLS that is the
end of the connection.

**All or nothing.** A push is stored whole or refused whole, with the first fault named by its path (`items[3].queue`).
It may be accepted in part while some of its partitions wait in buffer files, and where it names more than 8 queues of
the embedded store: then each item is answered by itself. A request that was refused changed nothing. What is answered
201 is as durable as its `receipt` says. When the connection breaks before the answer, the request may or may not have
happened: send it again with the same transactionIds and it is stored once.

**Ids.** `seq` is a message's number in its queue. `messageId` (`id` in a pop) says the same in the form of a UUID
(version 8): its first 60 free bits are a hash of the queue's name, its last 60 are the seq. It is derived and never
stored, so that it is the same in every answer that names the message.

**Long polls** wait in `forebay.broker.waiting`. A client that goes away is out of its waiting list at once and nothing
is popped for it, whatever it has sent behind its poll. One that closes its sending side counts as gone: until something
is written to it, the two cannot be distinguished. A machine that vanishes without a word is noticed after two minutes
(TCP keep-alive). When the server stops they end with 204.

**Arrow.** A range of a queue is answered chunk by chunk while it is read, with no length announced. When something
breaks in the middle the connection is cut, and Arrow's end-of-stream marker is missing: ask again behind the last row.
Rows on their way in are staged, then committed (`forebay.broker.arrow`). `partition` may be given several times.
A reader that remembers where it stood gives `identity` and `removedUpTo`: it gets an error when the queue is another
one, or when messages are gone that it has not read. `readers/{name}` keeps finished messages for it.

**Buffered pushes.** `bufferMs` and `bufferMax` of a push, and what becomes of pushes while the store is away or in
maintenance, are `forebay.ingest`'s: this room says in each answer which way its message took.
"""
