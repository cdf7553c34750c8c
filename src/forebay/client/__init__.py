"""The Python client: push, take, acknowledge, for programs with an event loop and for those without.

    async with AsyncClient("http://127.0.0.1:6632") as client:
        await client.push("orders", {"id": 7})
        async for message in client.take("orders@billing", batch=100):
            handle(message.data)
            await client.ack(message)

`Client` is the same without `async`. An address is `queue`, `queue/partition`, `queue@group` or
`queue/partition@group`.

**Retries cannot duplicate.** The client gives every message its transaction id before the first try. When an answer is
lost it asks again, here or at the next server, and a message that had been stored is answered as a duplicate, which
`push` reports as what it is: stored.

**One request for many.** Pushes of single messages that wait at the same time share a request (`merging`), so a
program with many tasks need not batch by itself. Each is answered when its own message is stored.

**Data comes back as it was pushed**, or is refused: `bytes` as bytes, `Decimal` with all its digits, NaN not at all
(`outgoing`). A batch that is too large for one request leaves in several, in order.

**Several servers.** Give several URLs, one by one or in a list; a server that does not answer is left out for
`retry_unhealthy_seconds`, and the next one is tried. What a server refuses (4xx) is final and raised as `Refused`; what
it cannot do now (5xx, 429, no connection) is tried again `attempts` times with growing pauses, and then raised as
`Unreachable`.

**What cannot be known.** A transaction that is sent again because its answer was lost may be refused for the very
reason that its first try was carried out. Then `commit` raises `OutcomeUnknown`, and `TransactionFailed` only where
nothing of it happened for sure. An `ack` that finds its lease finished after such a loss returns False.

**Close.** It ends every call under way with `ClientClosed`, in whatever thread or task, and nothing is sent behind it;
later calls get the same. So does a call in a forked child: the connections are the parent's, and the child
makes a client of its own.

**Leases.** `take` hands out messages one by one; those that were fetched but not handed out yet are leased too. For
work that takes longer than the lease use `consume`, which renews the lease while the handler runs, acknowledges when
it returns, and reports the error when it raises. A renewal that reaches no server is soon tried again, for as long as
the handler runs; only the server's word that the lease is lost ends it. Messages of a partition are handled in order:
those behind one that failed come after it (`handling`).

**Small.** It needs `msgspec` and `httptools`, and PyArrow for the calls that speak Arrow; nothing else is imported.
`packages/forebay-client` installs it alone.

**Many at a time.** `read_arrow` and `iter_arrow` read a queue as Arrow columns, without a group. `stage` and `commit`
write rows once, however often the program that writes them is killed and starts again:

    stages = await client.stage("orders", table, producer="nightly", epoch="2026-01-31")
    await client.commit(stages, producer="nightly", epoch="2026-01-31")

**Parcels.** `lease`, `heartbeat`, `complete` and `release` are a worker's side of dispatch; `DispatchWorker` does all
of it around a handler (`dispatch_worker`), and `SyncDispatchWorker` is the same without an event loop:

    await DispatchWorker(client, {"geo.*": geocode}).run()

`start_records` sends rows through a step of a flow again that failed there, each once by its key (`step_records`).
"""

from forebay.client.addresses import Address, parse_address
from forebay.client.async_client import AsyncClient
from forebay.client.dispatch_worker import DispatchWorker
from forebay.client.messages import (
    ClientClosed,
    Committed,
    Message,
    OutcomeUnknown,
    Pushed,
    PushSummary,
    Refused,
    TransactionFailed,
    Unreachable,
)
from forebay.client.parcel_work import ParcelWork
from forebay.client.parcels import (
    AwaitedRows,
    Completed,
    MessageRange,
    MessagesGone,
    MissingMessages,
    OutputRows,
    Parcel,
    ParcelLease,
    ParcelOutcome,
    ParcelPart,
)
from forebay.client.step_records import RecordsStarted, StepRecord
from forebay.client.sync_client import Client
from forebay.client.sync_dispatch_worker import SyncDispatchWorker

__all__ = [
    "Address",
    "AsyncClient",
    "AwaitedRows",
    "Client",
    "ClientClosed",
    "Committed",
    "Completed",
    "DispatchWorker",
    "Message",
    "MessageRange",
    "MessagesGone",
    "MissingMessages",
    "OutcomeUnknown",
    "OutputRows",
    "Parcel",
    "ParcelLease",
    "ParcelOutcome",
    "ParcelPart",
    "ParcelWork",
    "PushSummary",
    "Pushed",
    "RecordsStarted",
    "Refused",
    "StepRecord",
    "SyncDispatchWorker",
    "TransactionFailed",
    "Unreachable",
    "parse_address",
]
