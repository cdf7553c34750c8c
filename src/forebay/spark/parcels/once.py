"""A flow on parcels, over what is there now: for `forebay flows run NAME --once`."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from forebay.flows.definition import Flow
from forebay.flows.supervision import State
from forebay.flows.worker import FlowFailed
from forebay.spark.options import Connection
from forebay.spark.parcels.lanes import LaneOptions
from forebay.spark.parcels.lease import DispatchCalls
from forebay.spark.parcels.worker import ParcelWorker
from forebay.spark.positions import EARLIEST, Bounds
from forebay.spark.queues import Queue
from forebay.spark.server_calls import ServerCalls

POLL_SECONDS = 0.2
_UNDER_WAY = ("queued", "cold", "leased", "joining", "exporting")


class Once(NamedTuple):
    leases: int
    rows: int
    bad: int
    errors: int
    """Parcels of the flow in ERROR, those of earlier runs too."""
    cause: str


def run_once(spark: SparkSession, flow: Flow, connection: Connection, options: LaneOptions) -> Once:
    """Work until every message that the source's queue holds now is in a finished parcel. Raises FlowFailed."""
    worker = ParcelWorker(spark, [flow], connection, options)
    calls = DispatchCalls(connection)
    worker.start()
    try:
        bounds = Queue(ServerCalls(connection), flow.source.queue).bounds(EARLIEST) if flow.source.queue else None
        while True:
            worker.check()
            [report] = worker.reports()
            if report.state is State.FAILED:
                raise FlowFailed(report.cause, is_final=True)
            known = calls.flow(flow.name)
            if known is not None and _is_over(known, bounds):
                break
            if known is not None and known["state"] == "STOPPED" and not _is_busy(known):
                raise FlowFailed(f"the flow's source is stopped: {known['reason'] or 'by request'}", is_final=True)
            time.sleep(POLL_SECONDS)
    finally:
        worker.stop()
    counts = worker.counts(flow.name)
    return Once(counts.leases, counts.rows, counts.bad, int(known["errors"]), counts.cause)


def _is_over(known: dict[str, Any], bounds: Bounds | None) -> bool:
    return (bounds is None or _is_cut(known, bounds)) and not _is_busy(known)


def _is_cut(known: dict[str, Any], bounds: Bounds) -> bool:
    """Whether all that the queue held is in parcels. Those of one that had its name before do not count."""
    is_same = (bounds.identity or "").startswith(f"{known['queueId']}-")
    return is_same and int(known["nextSeq"]) >= bounds.next_seq


def _is_busy(known: dict[str, Any]) -> bool:
    return any(known[name] for name in _UNDER_WAY)
