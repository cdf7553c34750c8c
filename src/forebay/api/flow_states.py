"""How a flow stands, from what its worker said last and when that was."""

from __future__ import annotations

import msgspec

from forebay.broker.flow_rows import FlowRow
from forebay.dispatch.views import FlowWork
from forebay.flows.flow_report import CAUSE_CHARACTERS_MAX, QUIET_SECONDS, FlowReport
from forebay.flows.supervision import State


def report_of(row: FlowRow) -> FlowReport | None:
    """What its worker said last; None if none has said anything."""
    try:
        return msgspec.json.decode(row.report, type=FlowReport)
    except msgspec.DecodeError:
        return None


def report_now(row: FlowRow, lag: int | None, now_us: int, done: FlowWork | None) -> FlowReport:
    """The same with the lag as it is now, and `lost` where the worker has not been heard for a while.

    `done`: of a flow on parcels. Several workers may serve it, so that what it did is what was committed, and no
    worker's own count.
    """
    report = report_of(row) or FlowReport(name=row.name, state=State.STOPPED)
    state = report.state
    is_quiet = now_us - row.updated_us > QUIET_SECONDS * 1_000_000
    if is_quiet and state not in (State.STOPPED, State.FAILED):
        state = State.LOST
    if row.is_paused and state in (State.STOPPED, State.LOST):
        state = State.PAUSED
    report = msgspec.structs.replace(report, state=state, lag=lag)
    return report if done is None else _with_work(report, done)


def _with_work(report: FlowReport, done: FlowWork) -> FlowReport:
    cause = report.cause
    if done.errors and not cause:
        newest = done.error.partition("\n")[0]
        cause = f"{done.errors:,} parcel{'' if done.errors == 1 else 's'} in ERROR, the newest: {newest}"
    return msgspec.structs.replace(
        report,
        batches=done.leases,
        rows=done.rows,
        bad_rows=done.bad,
        skipped_rows=done.skipped,
        cause=cause[:CAUSE_CHARACTERS_MAX],
    )
