"""Runs flows and looks after them: one loop, one flow after the other, so that their queries start one by one.

Whatever starts queries is behind `Runner`, the servers are behind `FlowControl`; the worker knows no Spark and no HTTP.
A flow's failure is that flow's alone. No flow starts before a server has said whether it is paused; when servers are
away later on, what they said last holds.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from forebay.clock import Clock, SystemClock
from forebay.errors import ForebayError
from forebay.flows.definition import Flow
from forebay.flows.flow_directory import FlowDirectory, FlowRunsElsewhere
from forebay.flows.flow_report import FlowControl, FlowReport
from forebay.flows.supervision import Standing, State, Step, Wish, completed_batch, failed, next_step, paused, started


class FlowFailed(ForebayError):
    """A flow's query ended, or could not be started. `is_final`: no repetition will heal it."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the queries of a flow have come since they were started."""

    batches: int = 0
    batch: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    lag: int | None = None
    bad_rows: int = 0
    skipped_rows: int = 0
    note: str = ""
    """What it is busy with beside its batches."""


class RunningFlow(Protocol):
    """The queries of one flow."""

    def check(self) -> Progress:
        """How far they have come. Raises FlowFailed if one of them has ended."""

    def stop(self) -> Progress:
        """End them all, and tell how far they came; a batch under way is repeated at the next start."""


class Runner(Protocol):
    def start(self, flow: Flow, directory: FlowDirectory) -> RunningFlow:
        """Start the queries of a flow. Raises FlowFailed."""


Tell = Callable[[str], None]


class _Watched:
    """One flow under the worker's eyes."""

    def __init__(self, flow: Flow, directory: FlowDirectory) -> None:
        self.flow = flow
        self.directory = directory
        self.standing = Standing()
        self.since = ""
        self.is_elsewhere = False
        """Whether another process has it, whose reports count."""
        self.is_known = False
        """Whether a server has said what it knows of the flow."""
        self.running: RunningFlow | None = None
        self.held = ExitStack()
        self.progress = Progress()
        self.before = Progress()
        """What earlier runs did: a start begins to count anew."""


class Worker:
    """Looks after flows. `step` does what is to be done now; call it about once a second."""

    def __init__(
        self,
        flows: Sequence[Flow],
        runner: Runner,
        data_dir: Path,
        control: FlowControl,
        *,
        tell: Tell = lambda _: None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._watched = [_Watched(flow, FlowDirectory(data_dir, flow.name)) for flow in flows]
        self._runner = runner
        self._control = control
        self._tell = tell
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._is_stopping = is_stopping

    def step(self) -> None:
        """Look at every flow once. Starting many takes a while, so a worker that is to stop starts no more of them."""
        for watched in self._watched:
            if self._is_stopping():
                break
            self._look(watched)
        self._control.report(self.reports())

    def stop(self) -> None:
        """Stop all flows and say so in their state."""
        for watched in self._watched:
            self._end(watched)
            if watched.standing.state is not State.FAILED:
                self._enter(watched, replace(watched.standing, state=State.STOPPED))
        self._control.report(self.reports())

    def reports(self) -> list[FlowReport]:
        """How the flows stand that no other process has."""
        return [self._report(watched) for watched in self._watched if watched.is_known and not watched.is_elsewhere]

    def _look(self, watched: _Watched) -> None:
        wish = self._control.wish(watched.flow.name)
        if wish is None:
            return
        self._remember(watched)
        step = next_step(watched.standing, wish, self._clock.monotonic())
        try:
            if step is Step.START or watched.running is not None:
                _refuse_if_elsewhere(watched.flow.name, wish)
            if step is Step.START:
                self._start(watched, wish)
            elif step is Step.STOP:
                self._end(watched)
                self._enter(watched, paused(watched.standing, wish))
            elif watched.running is not None:
                self._follow(watched, watched.running)
        except (FlowRunsElsewhere, OSError) as fault:
            # Another process has the flow, or its directory cannot be used now: both may be over at the next try.
            watched.is_elsewhere = isinstance(fault, FlowRunsElsewhere)
            self._fail(watched, str(fault), is_final=False, wish=wish)
        except FlowFailed as fault:
            self._fail(watched, str(fault), is_final=fault.is_final, wish=wish)

    def _remember(self, watched: _Watched) -> None:
        """Go on counting where the last worker stopped."""
        if watched.is_known:
            return
        watched.is_known = True
        known = self._control.known(watched.flow.name)
        if known is None:
            if watched.directory.take_old_pause():
                self._control.pause(watched.flow.name)
            return
        watched.before = Progress(
            batches=known.batches,
            batch=known.batch,
            rows=known.rows,
            bad_rows=known.bad_rows,
            skipped_rows=known.skipped_rows,
        )
        watched.standing = replace(watched.standing, restarts=known.restarts, cause=known.cause)

    def _start(self, watched: _Watched, wish: Wish) -> None:
        watched.held.enter_context(watched.directory.locked())
        watched.is_elsewhere = False
        watched.running = self._runner.start(watched.flow, watched.directory)
        self._enter(watched, started(watched.standing, wish))

    def _follow(self, watched: _Watched, running: RunningFlow) -> None:
        seen = running.check()
        if seen == watched.progress:
            return
        if seen.batches > watched.progress.batches:
            watched.standing = completed_batch(watched.standing)
            self._tell(_line(watched.flow.name, seen))
        watched.progress = seen

    def _fail(self, watched: _Watched, cause: str, *, is_final: bool, wish: Wish) -> None:
        self._end(watched)
        now = self._clock.monotonic()
        standing = failed(watched.standing, cause, is_final=is_final, wish=wish, now=now, jitter=self._jitter())
        self._enter(watched, standing)
        again = "" if is_final else f"; again in {standing.start_at - now:.1f} s"
        self._tell(f"{watched.flow.name}: {standing.state}: {cause}{again}")

    def _end(self, watched: _Watched) -> None:
        if watched.running is not None:
            watched.progress = watched.running.stop()
        watched.running = None
        watched.held.close()
        watched.before = _sum(watched.before, watched.progress)
        watched.progress = Progress()

    def _enter(self, watched: _Watched, standing: Standing) -> None:
        if standing.state is not watched.standing.state or not watched.since:
            watched.since = self._now()
        watched.standing = standing
        if standing.state in (State.RUNNING, State.PAUSED, State.STOPPED):
            self._tell(f"{watched.flow.name}: {standing.state}")

    def _report(self, watched: _Watched) -> FlowReport:
        flow, standing = watched.flow, watched.standing
        total = _sum(watched.before, watched.progress)
        return FlowReport(
            name=flow.name,
            state=standing.state,
            cause=standing.cause,
            note=watched.progress.note,
            since=watched.since,
            restarts=standing.restarts,
            batches=total.batches,
            batch=total.batch,
            rows=total.rows,
            rows_per_second=total.rows_per_second,
            batch_seconds=total.batch_seconds,
            lag=total.lag if standing.state is State.RUNNING else None,
            bad_rows=total.bad_rows,
            skipped_rows=total.skipped_rows,
            queue=flow.source.queue,
            group=flow.group,
            error_queue=flow.errors_to,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_us() / 1_000_000, UTC).isoformat(timespec="milliseconds")


def _refuse_if_elsewhere(name: str, wish: Wish) -> None:
    if wish.runs_at:
        raise FlowRunsElsewhere(f"flow {name!r} runs in another worker ({wish.runs_at})", remedy="Stop that one")


def _sum(before: Progress, now: Progress) -> Progress:
    return Progress(
        before.batches + now.batches,
        before.batch if now.batch is None else now.batch,
        before.rows + now.rows,
        now.rows_per_second,
        now.batch_seconds,
        now.lag,
        before.bad_rows + now.bad_rows,
        before.skipped_rows + now.skipped_rows,
    )


def _line(name: str, progress: Progress) -> str:
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    bad += f", {progress.skipped_rows:,} skipped" if progress.skipped_rows else ""
    return f"{name}: batch {progress.batch}: {progress.rows:,} rows read{bad}{lag} ({progress.batch_seconds:.1f} s)"
