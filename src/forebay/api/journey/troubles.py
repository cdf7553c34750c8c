"""What is wrong now, in plain words, with the page on which it is mended. Pure.

`broken`: something does not work, or data is in danger. `warning`: it works, but needs a look. `note`: an operator has
set it so, and should know that it is still so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from forebay.api.journey.figures import ExportNow, Look
from forebay.flows.flow_report import FlowReport
from forebay.flows.supervision import State
from forebay.model.internal_queues import is_internal

LAG_SECONDS = 60.0
OF_A_KIND_MAX = 5
"""More of one kind become one sentence."""
_RANKS = ("broken", "warning", "note")


class Trouble(NamedTuple):
    severity: str
    text: str
    link: str
    kind: str


def troubles_of(look: Look) -> list[Trouble]:
    """The worst first."""
    found = [
        *_of_store(look),
        *_of_queues(look),
        *_of_dispatch(look),
        *_of_flows(look),
        *(trouble for export in look.exports for trouble in _of_export(export)),
        *_of_machine(look),
    ]
    return sorted(_gathered(found), key=lambda each: _RANKS.index(each.severity))


def _of_store(look: Look) -> Iterator[Trouble]:
    if not look.is_store_there:
        why = f": {look.buffers.reason}" if look.buffers.reason else ""
        yield Trouble(
            "broken",
            f"The store does not answer{why}. Pushes are kept in buffer files; figures of queues are old.",
            "/buffers",
            "store",
        )
    if look.buffers.pending and look.is_store_there:
        yield Trouble(
            "warning",
            f"{_many(look.buffers.pending, 'message')} wait in buffer files to be stored.",
            "/buffers",
            "buffers",
        )
    if look.buffers.failed:
        yield Trouble(
            "broken", f"{_many(look.buffers.failed, 'buffered message')} could not be stored.", "/buffers", "failed"
        )
    if look.buffers.damaged_files:
        yield Trouble(
            "broken", f"{_many(look.buffers.damaged_files, 'buffer file')} held damaged bytes.", "/buffers", "damaged"
        )
    if look.is_push_paused:
        yield Trouble("note", "Push maintenance is on: pushes are buffered.", "/buffers", "maintenance")
    if look.is_pop_paused:
        yield Trouble("note", "Pop maintenance is on: pops find nothing.", "/buffers", "maintenance")


def _of_queues(look: Look) -> Iterator[Trouble]:
    for name, count in sorted(look.lost.items()):
        yield Trouble(
            "broken", f"Queue {name}: {_many(count, 'message')} cannot be read any more.", _queue(name), "lost"
        )
    for queue in look.store.queues:
        for group in queue.groups:
            if group.lag_messages and group.lag_seconds >= LAG_SECONDS and not is_internal(queue.name):
                behind = f"{_many(group.lag_messages, 'message')} and {_age(group.lag_seconds)} behind"
                yield Trouble(
                    "warning", f"Group {group.name} of queue {queue.name} is {behind}.", _queue(queue.name), "lag"
                )
        if queue.dead_letters:
            yield Trouble(
                "warning",
                f"Queue {queue.name} has {_many(queue.dead_letters, 'dead letter')}.",
                f"/dead-letters?queue={quote(queue.name, safe='')}",
                "dead",
            )


def _of_dispatch(look: Look) -> Iterator[Trouble]:
    for warning in look.store.warnings:
        if warning.check == "warm":  # ten parcels that wait are a queue at work
            continue
        of_class = f"Action class {warning.action_class}: " if warning.action_class else ""
        severity = "broken" if warning.check == "no-worker" else "warning"
        yield Trouble(severity, f"{of_class}{warning.message}.", "/queue-metrics", warning.check)
    if look.store.errors:
        yield Trouble(
            "warning", f"{_many(look.store.errors, 'parcel')} ended in ERROR.", "/parcels?state=ERROR", "errors"
        )
    for name in look.store.paused_flows:
        yield Trouble("note", f"Flow {name} is paused: its parcels wait.", "/flows", "paused")
    for name, reason in look.store.stopped_flows:
        yield Trouble(
            "warning",
            f"Flow {name} is stopped{f': {reason}' if reason else ''}. No more parcels are cut from its source.",
            "/flows",
            "stopped",
        )


def _of_flows(look: Look) -> Iterator[Trouble]:
    for report in look.store.reports:
        text = _flow_text(report)
        if text:
            severity = "note" if report.state is State.PAUSED else "broken"
            yield Trouble(severity, text, "/flows", f"flow-{report.state}")


def _flow_text(report: FlowReport) -> str:
    cause = f": {_first_line(report.cause)}" if report.cause else ""
    match report.state:
        case State.FAILED:
            return f"Flow {report.name} has failed{cause}."
        case State.LOST:
            return f"The worker of flow {report.name} is not heard any more."
        case State.RESTARTING:
            return f"Flow {report.name} is being restarted{cause}."
        case State.PAUSED:
            return f"Flow {report.name} is paused."
        case _:
            return ""


def _of_export(export: ExportNow) -> Iterator[Trouble]:
    name = f"{'Destination' if export.kind == 'destination' else 'Export'} {export.name}"
    unit = "batch" if export.kind == "destination" else "message"
    why = f": {_first_line(export.last_error)}" if export.last_error else ""
    if export.breaker == "closed" and export.backoff_seconds and export.waiting:
        yield Trouble(
            "warning",
            f"{name} did not take the last batch{why}. It is tried again every {_age(export.backoff_seconds)}; "
            f"{_many(export.waiting, unit)} wait.",
            "/destinations",
            "backoff",
        )
    if export.breaker != "closed":
        yield Trouble(
            "broken",
            f"{name} does not take anything{why}. {_many(export.waiting, unit)} wait; "
            f"it is tried again in {_age(export.retry_seconds)}.",
            "/destinations",
            "breaker",
        )
    if export.is_paused:
        yield Trouble(
            "note", f"{name} is paused; {_many(export.waiting, unit)} wait.", "/destinations", "export-paused"
        )
    if export.dead:
        yield Trouble("warning", f"{name} refused {_many(export.dead, unit)} for good.", "/destinations", "export-dead")
    if export.dropped:
        yield Trouble(
            "broken", f"{name} has dropped {_many(export.dropped, unit)} since the start.", "/destinations", "dropped"
        )


def _of_machine(look: Look) -> Iterator[Trouble]:
    for disk in look.disks:
        yield Trouble(
            "broken" if disk.free_share < 0.05 else "warning",
            f"The disk of {disk.name} has {disk.free_share:.0%} left.",
            "/queues",
            "disk",
        )


def _gathered(found: list[Trouble]) -> Iterator[Trouble]:
    """A hundred groups that lag are one sentence more than five."""
    counts: dict[str, int] = {}
    for trouble in found:
        counts[trouble.kind] = counts.get(trouble.kind, 0) + 1
        if counts[trouble.kind] <= OF_A_KIND_MAX:
            yield trouble
    for kind, count in counts.items():
        if count > OF_A_KIND_MAX:
            first = next(trouble for trouble in found if trouble.kind == kind)
            more = count - OF_A_KIND_MAX
            yield Trouble(first.severity, f"And {more} more like “{first.text}”", first.link.partition("?")[0], kind)


def _many(count: int, unit: str) -> str:
    plural = {"batch": "batches"}.get(unit, f"{unit}s")
    return f"{count:,} {unit if count == 1 else plural}"


def _age(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0].rstrip(".")
    return line if len(line) <= 200 else f"{line[:199]}…"


def _queue(name: str) -> str:
    return f"/queues/{quote(name, safe='')}"
