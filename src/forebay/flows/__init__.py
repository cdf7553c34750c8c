"""Flows: a source, actions in order, and a sink, written in YAML or Python; judged here, run by `forebay.spark`.

    flows:
      - name: clicks
        mode: stream
        source: {queue: clicks, payloadAs: json, schema: "user STRING, at TIMESTAMP, ms INT"}
        tables:
          users: {format: csv, path: users.csv, options: {header: "true"}}
        watermark: {column: at, delay: 10s}
        actions:
          - name: enrich
            sql: SELECT c.*, u.region FROM input c JOIN users u ON c.user = u.id
          - name: per_minute
            class: rollup
            params: {window: 1m, time: at, keys: [region], aggregates: {clicks: count(*)}}
        sink: {queue: clicks-per-minute}

This room knows no Spark. It reads definitions and tells everything that is wrong with them at once, with file and line;
it decides when a flow is started, restarted and stopped; and it says what a worker tells the servers, which know how a
flow stands and what people want of it.

**Modes.** `parcels`, the default: dispatch cuts the queue into parcels, Spark works on them in chains of actions and
keeps nothing; any number of workers may serve a flow (`chains` says what dispatch gets, `forebay.spark.parcels` how
it is run). `stream`, for windows, watermarks and deduplication: a flow is one Structured Streaming query with Spark's
checkpoint, and a second one if it checks for bad records; one worker has it.

**Guarantees.** Into a queue each result is committed once, also when worker, driver or server are killed at any moment:
a lease is completed once, and a repeated batch has the same rows and the same number. Into an export the same, from
where a destination gets it at least once, with the same idempotency key. A table is as exactly once as its format is;
on parcels, at least once. Bad records go to the error queue in the same way. An action
may see a row again after a crash, so side effects of its own are at least once.

**Bad records** are payloads that are larger than `maxPayload`, not UTF-8 (`payloadAs: string`), not an object of the
schema (`payloadAs: json`, `parse_json`), or rejected by an action; a `RecordAction` rejects with `Error(cause)`. The
error queue holds the payload as it came; the headers say what is wrong, which message it is, and by what way the
record can be sent again (`letters`).

**Actions in Python** turn a frame into another (`DataFrameAction`) or look at one record at a time (`RecordAction`).

**Records that fail.** A record on which SQL or a function of an action fails, or whose result the sink refuses, fails
its batch. The batch is searched (`narrowing`) for the records that fail alone; `on_error` of the action says whether
they go to the error queue, are skipped, or stop the flow, after as many attempts as `retry` says. The flow goes on
without them, exactly once still. What is not the fault of a record is retried for ever and never set aside.

What follows a failure of a stream is below; of a flow on parcels: see `forebay.spark.parcels`.

| what fails | what follows |
|---|---|
| a definition | `check`, `worker` and `up` refuse it with all faults |
| a flow that Spark cannot compile | that flow is `failed`, with the cause; the others run |
| an action, on a record | the record is set aside, the rest goes on |
| a query, otherwise | the flow is `restarting`: 1 s, 2 s … 60 s, give or take a quarter, for ever |
| the worker is killed | the next one goes on from the checkpoints; after 15 s the servers call its flows `lost` |
| a second worker has the same flow | it stays `restarting` there until the first has gone |
| no server answers | flows go on by what was heard last; none starts before one has answered once |

**Limits.** A file has at most 1 MiB and 10,000 values. A flow's name has 64 characters. A batch has at most 500,000
messages unless `maxOffsetsPerTrigger` says otherwise. A search sets at most 1,000 records of a batch aside, after at
most 10,000 tries. Queries of a worker start one after the other: the next one when the source of the one before has
begun, or after 30 s.

The modules in the order of the journey: `definition`, `written` (values with their places), `flow_file`, `action`,
`record_action`, `registry`, `checks` and `neighbours`, `chains`, `supervision` and `narrowing` (decisions),
`flow_directory` (files), `flow_report` (what servers know), `worker` (the loop).
"""

from typing import TYPE_CHECKING

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction
from forebay.flows.definition import (
    ClassAction,
    ErrorFilter,
    ExportSink,
    Flow,
    Join,
    QueueSink,
    Retry,
    Source,
    SqlAction,
    StaticTable,
    Table,
    TableSink,
    Watermark,
)
from forebay.flows.faults import FlowFault, FlowsRefused
from forebay.flows.record_action import Error, Filter, Record, RecordAction, RecordContext, Result, Results

if TYPE_CHECKING:
    from forebay.flows.flow_file import find_flows, load_flows

__all__ = [
    "ActionContext",
    "ActionParams",
    "ClassAction",
    "DataFrameAction",
    "Error",
    "ErrorFilter",
    "ExportSink",
    "Filter",
    "Flow",
    "FlowFault",
    "FlowsRefused",
    "Join",
    "QueueSink",
    "Record",
    "RecordAction",
    "RecordContext",
    "Result",
    "Results",
    "Retry",
    "Source",
    "SqlAction",
    "StaticTable",
    "Table",
    "TableSink",
    "Watermark",
    "find_flows",
    "load_flows",
]


def __getattr__(name: str) -> object:
    """Reading files needs Pydantic and YAML. Executors, which import this room for its actions, need not have them."""
    if name in ("find_flows", "load_flows"):
        from forebay.flows import flow_file

        return getattr(flow_file, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
