"""From what a job staged and counted to what is said of each parcel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.flows.chains import Chain
from forebay.flows.definition import ExportSink
from forebay.model.internal_queues import EXPORT_GROUP
from forebay.model.queue import ERROR_CHARACTERS_MAX
from forebay.spark.parcels.lease import ActionRun, Await, Missing, Outcome, Output, Parcel
from forebay.spark.parcels.staging import Staged, Target


@dataclass(frozen=True, slots=True)
class JobDone:
    """A job over parcels of one chain, and what came of it."""

    chain: Chain
    parcels: Sequence[Parcel]
    targets: Sequence[Target]
    staged: Staged
    counts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Rows behind an action, by its number in the chain: `all`, and by did where that was counted."""
    started_at: str = ""
    finished_at: str = ""
    missing: Mapping[str, Sequence[Missing]] = field(default_factory=dict)
    """What each parcel lacks, by did."""

    @property
    def is_alone(self) -> bool:
        """Whether all rows are one parcel's, whatever they say themselves."""
        return len(self.parcels) == 1

    def read(self, parcel: Parcel) -> int:
        """How many messages of the parcel were there."""
        return max(0, parcel.messages - sum(one.messages for one in self.missing.get(parcel.did, ())))


def outcomes_of(job: JobDone) -> list[Outcome]:
    """In the order of the parcels, which is the order of their rows."""
    return [_outcome(job, parcel) for parcel in job.parcels]


def failed(chain: Chain, parcel: Parcel, error: str, started_at: str, finished_at: str, *, away: bool) -> Outcome:
    """A parcel whose chain failed. `away`: something that it called did not answer."""
    text = error[:ERROR_CHARACTERS_MAX]
    run = ActionRun(action=chain.name, started_at=started_at, finished_at=finished_at, error=text)
    return Outcome(did=parcel.did, state="ERROR", error=text, transient=away, rows_in=parcel.messages, actions=[run])


def _outcome(job: JobDone, parcel: Parcel) -> Outcome:
    chain = job.chain
    bad = _rows(job, parcel, [n for n, target in enumerate(job.targets) if target.queue == chain.flow.errors_to])
    reasons: Mapping[str, int] = job.staged.filtered.get(parcel.did, {})
    skipped = job.staged.skipped[parcel.did]
    filtered = sum(reasons.values()) + skipped
    common = {
        "did": parcel.did,
        "rows_in": job.read(parcel),
        "missing": job.missing.get(parcel.did, ()),
        "bad": bad,
        "filtered": filtered or None,
        "skipped": skipped or None,
        "actions": _runs(job, parcel, bad),
        "annotations": dict(job.staged.notes.get(parcel.did, {})),
    }
    if not chain.is_last:
        rows = _rows(job, parcel, [n for n, target in enumerate(job.targets) if target.queue == chain.output_queue])
        return Outcome(state="COMPLETE", rows_out=rows, output=Output(chain.output_queue, rows or 0), **common)  # type: ignore[arg-type]
    sinks = {sink.queue: sink for sink in chain.flow.all_sinks if hasattr(sink, "queue")}
    numbers = [n for n, target in enumerate(job.targets) if target.queue in sinks]
    rows = _rows(job, parcel, numbers)
    awaits = [
        Await(sink.queue, EXPORT_GROUP, chain.flow.name, _awaited(job, parcel, sink.queue))
        for sink in sinks.values()
        if isinstance(sink, ExportSink)
    ]
    is_filtered = rows == 0 and not bad and len(sinks) == len(chain.flow.all_sinks)
    state = "FILTERED" if is_filtered else "COMPLETE"
    waiting = tuple(one for one in awaits if one.rows) if state == "COMPLETE" else ()
    return Outcome(state=state, rows_out=rows, awaits=waiting, **common)  # type: ignore[arg-type]


def _rows(job: JobDone, parcel: Parcel, targets: Sequence[int]) -> int | None:
    """How many rows of the parcel are for these targets; None if some do not say whose they are."""
    if job.is_alone:
        return sum(job.staged.rows_of(target) for target in targets)
    if any(job.staged.rows.get((target, ""), 0) for target in targets):
        return None
    return sum(job.staged.rows.get((target, parcel.did), 0) for target in targets)


def _awaited(job: JobDone, parcel: Parcel, queue: str) -> int:
    """Rows that a parcel waits for; where they do not say whose they are, it waits for all of them."""
    targets = [n for n, target in enumerate(job.targets) if target.queue == queue]
    rows = _rows(job, parcel, targets)
    return sum(job.staged.rows_of(target) for target in targets) if rows is None else rows


def _runs(job: JobDone, parcel: Parcel, bad: int | None) -> list[ActionRun]:
    runs: list[ActionRun] = []
    rows_in: int | None = job.read(parcel)
    for number, action in enumerate(job.chain.actions):
        counted = job.counts.get(number, {})
        rows_out = counted.get("all") if job.is_alone else counted.get(parcel.did)
        is_last = number == len(job.chain.actions) - 1
        runs.append(
            ActionRun(
                action=action.name,
                started_at=job.started_at,
                finished_at=job.finished_at,
                rows_in=rows_in,
                rows_out=rows_out,
                bad=bad if is_last and bad else None,
            )
        )
        rows_in = rows_out
    return runs
