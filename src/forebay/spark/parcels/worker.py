"""A worker's flows on parcels: defined with the servers, worked on in lanes, and reported.

A flow is compiled before it is defined. One that does not compile is not defined: its report says why, and its queue
waits. Where the servers know it from before, they go on with that definition. Nothing is lost by it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote

from pyspark.sql import SparkSession

from forebay.flows.chains import chains_of, dispatch_definition
from forebay.flows.definition import ExportSink, Flow
from forebay.flows.flow_report import CAUSE_CHARACTERS_MAX, FlowReport
from forebay.flows.supervision import State
from forebay.spark.flow_plan import DoesNotCompile
from forebay.spark.option_table import BATCH_READ
from forebay.spark.options import Connection, read_options
from forebay.spark.parcels.known_flows import compiled_chains
from forebay.spark.parcels.lanes import LaneOptions, Lanes, LeaseDone
from forebay.spark.parcels.lease import DispatchCalls
from forebay.spark.positions import resolve
from forebay.spark.queues import Queue
from forebay.spark.server_calls import ServerCalls, ServerRefused, ServersAway

INTERNAL_RETENTION_SECONDS = 3600
"""How long rows between two chains are kept; what an unfinished parcel needs is kept longer."""
DEFINE_RETRY_SECONDS = 10.0

Tell = Callable[[str], None]


@dataclass(slots=True)
class Counts:
    """What this worker did since it began. What is shown of a flow is what the servers have counted, of all workers."""

    leases: int = 0
    rows: int = 0
    bad: int = 0
    seconds: float = 0.0
    """How long the last lease took."""
    cause: str = ""
    """Why parcels of the last lease failed, if they did."""


class ParcelWorker:
    """Works on the flows that are given. `start`, then `check` now and then, then `stop`."""

    def __init__(
        self,
        spark: SparkSession,
        flows: Sequence[Flow],
        connection: Connection,
        options: LaneOptions,
        *,
        tell: Tell = lambda _: None,
    ) -> None:
        self._spark = spark
        self._flows = list(flows)
        self._connection = connection
        self._tell = tell
        self._calls = DispatchCalls(connection)
        self._lock = threading.Lock()
        self._counts = {flow.name: Counts() for flow in flows}
        self._states = {flow.name: State.STARTING for flow in flows}
        self._causes: dict[str, str] = {}
        self._undefined = list(flows)
        self._since = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lanes = Lanes(spark, connection, options, on_done=self._count, tell=tell)

    def start(self) -> None:
        """Define the flows, as far as servers answer, and begin to lease."""
        self._define_all()
        self._lanes.start()

    def check(self) -> None:
        """Define what no server took yet. Raises what keeps all lanes from going on."""
        if self._lanes.failure is not None:
            raise self._lanes.failure
        if self._undefined:
            self._define_all()

    def stop(self) -> None:
        self._lanes.stop()
        for name, state in self._states.items():
            if state is not State.FAILED:
                self._states[name] = State.STOPPED

    def reports(self) -> list[FlowReport]:
        with self._lock:
            return [self._report(flow) for flow in self._flows]

    def counts(self, flow: str) -> Counts:
        with self._lock:
            return replace(self._counts[flow])

    # --- defining ---

    def _define_all(self) -> None:
        for flow in list(self._undefined):
            try:
                compiled_chains(self._spark, flow)
                self._define(flow)
            except (DoesNotCompile, ServerRefused) as fault:
                self._enter(flow.name, State.FAILED, str(fault))
            except ServersAway as away:
                self._enter(flow.name, State.RESTARTING, str(away))
                return
            else:
                self._enter(flow.name, State.RUNNING)
            self._undefined.remove(flow)

    def _define(self, flow: Flow) -> None:
        if flow.source.queue:
            self._make_queue(flow.source.queue, {})
        for chain in chains_of(flow):
            if chain.output_queue:
                self._make_queue(chain.output_queue, {"retentionSeconds": INTERNAL_RETENTION_SECONDS})
        for sink in flow.all_sinks:
            if isinstance(sink, ExportSink):
                self._make_queue(sink.queue, {"completedRetentionSeconds": INTERNAL_RETENTION_SECONDS})
        self._calls.define(flow.name, dispatch_definition(flow, self._start_seq(flow)))

    def _make_queue(self, queue: str, options: dict[str, int]) -> None:
        calls = self._server_calls()
        try:
            calls.request("GET", f"/api/v1/arrow/queues/{quote(queue, safe='')}/range")
        except ServerRefused as refused:
            if refused.code != "unknown_queue":
                raise
            body = json.dumps({"queue": queue, "options": options}).encode()
            calls.request("POST", "/api/v1/configure", body)

    def _start_seq(self, flow: Flow) -> int | None:
        """Where a flow begins that is to begin at a time: found out once, when it is new."""
        if flow.source.starting_timestamp is None or not flow.source.queue:
            return None
        known = self._calls.flow(flow.name)
        if known is not None:
            found: int | None = known["definition"]["source"].get("startSeq")
            return found
        given = {"queue": flow.source.queue, "startingTimestamp": flow.source.starting_timestamp}
        starting = read_options(given, BATCH_READ).starting
        return resolve(starting, Queue(self._server_calls(), flow.source.queue).bounds(starting))

    def _server_calls(self) -> ServerCalls:
        return ServerCalls(self._connection._replace(retry_seconds=DEFINE_RETRY_SECONDS))

    # --- reporting ---

    def _enter(self, name: str, state: State, cause: str = "") -> None:
        with self._lock:
            is_new = self._states[name] is not state or self._causes.get(name, "") != cause
            self._states[name] = state
            self._causes[name] = cause
        if is_new:
            self._tell(f"{name}: {state}{f': {cause}' if cause else ''}")

    def _count(self, done: LeaseDone) -> None:
        failed = [one for one in done.outcomes if one.state == "ERROR"]
        rows = sum(one.rows_in or 0 for one in done.outcomes if one.state != "ERROR")
        bad = sum(one.bad or 0 for one in done.outcomes)
        with self._lock:
            counts = self._counts.setdefault(done.flow, Counts())
            counts.leases += 1
            # A message is counted once, however many chains it goes through.
            counts.rows += 0 if done.step else rows
            counts.bad += bad
            counts.seconds = done.seconds
            counts.cause = failed[0].error.partition("\n")[0] if failed else ""
        summary = f"{done.flow}: {_counted(len(done.outcomes), 'parcel')}, {rows:,} rows"
        summary += f", {bad:,} bad" if bad else ""
        summary += f", {len(failed)} in error: {counts.cause}" if failed else ""
        self._tell(f"{summary} ({done.seconds:.1f} s)")

    def _report(self, flow: Flow) -> FlowReport:
        return FlowReport(
            name=flow.name,
            state=self._states[flow.name],
            cause=self._causes.get(flow.name, "")[:CAUSE_CHARACTERS_MAX],
            since=self._since,
            batch_seconds=self._counts[flow.name].seconds,
            queue=flow.source.queue,
            group=flow.group,
            error_queue=flow.errors_to,
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def classes_of(flows: Sequence[Flow]) -> list[str]:
    """The action classes of the flows' chains, each once."""
    return list(dict.fromkeys(chain.action_class for flow in flows for chain in chains_of(flow)))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
