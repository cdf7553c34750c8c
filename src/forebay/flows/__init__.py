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

**Modes.** `stream`: a flow is one Structured Streaming query with Spark's checkpoint, and a second one if it checks for
bad records. `parcels`, which will be the default, is not available yet and refused; so the mode has to be written.

**Guarantees.** Into a queue each result is committed once, also when worker, driver or server are killed at any moment:
a repeated batch has the same rows and the same number. Bad records go to the error queue in the same way. An action
may see a row again after a crash, so side effects of its own are at least once.

**Bad records** are payloads that are larger than `maxPayload`, not UTF-8 (`payloadAs: string`), not an object of the
schema (`payloadAs: json`, `parse_json`), or rejected by an action. The error queue holds the payload as it came; the
headers have flow, queue, cause, seq, partition, transaction_id, created_at.

**Records that fail.** A record on which SQL or a function of an action fails, or whose result the sink refuses, fails
its batch. The batch is searched (`narrowing`) for the records that fail alone; `on_error` of the action says whether
they go to the error queue, are skipped, or stop the flow, after as many attempts as `retry` says. The flow goes on
without them, exactly once still. What is not the fault of a record is retried for ever and never set aside.

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
most 10,000 tries. Queries of a worker start one after the other: the next one when
the source of the one before has begun, or after 30 s.

The modules in the order of the journey: `definition`, `written` (values with their places), `flow_file`, `action`,
`registry`, `checks`, `supervision` and `narrowing` (decisions), `flow_directory` (files), `flow_report` (what servers
know), `worker` (the loop).
"""

from forebay.flows.action import ActionContext, ActionParams, DataFrameAction
from forebay.flows.definition import (
    ClassAction,
    Flow,
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
from forebay.flows.flow_file import find_flows, load_flows

__all__ = [
    "Flow",
    "Source",
    "SqlAction",
    "ClassAction",
    "StaticTable",
    "Watermark",
    "Retry",
    "QueueSink",
    "TableSink",
    "Table",
    "DataFrameAction",
    "ActionParams",
    "ActionContext",
    "FlowFault",
    "FlowsRefused",
    "find_flows",
    "load_flows",
]
