"""Runs flows and looks after them: one loop, one flow after the other, so that their queries start one by one.

Whatever starts queries is behind `Runner`; the worker knows no Spark. A flow's failure is that flow's alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from forebay.clock import Clock, SystemClock
from forebay.errors import ForebayError
from forebay.flows.definition import Flow
from forebay.flows.flow_directory import FlowDirectory, FlowReport, FlowRunsElsewhere
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
        self.running: RunningFlow | None = None
        self.held = ExitStack()
        self.progress = Progress()
        self.before = Progress()
        """What earlier runs of this worker did: a restart begins to count anew."""


class Worker:
    """Looks after flows. `step` does what is to be done now; call it about once a second."""

    def __init__(
        self,
        flows: Sequence[Flow],
        runner: Runner,
        data_dir: Path,
        *,
        tell: Tell = lambda _: None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._watched = [_Watched(flow, FlowDirectory(data_dir, flow.name)) for flow in flows]
        self._runner = runner
        self._tell = tell
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._is_stopping = is_stopping

    def step(self) -> None:
        """Look at every flow once. Starting many takes a while, so a worker that is to stop starts no more of them."""
        for watched in self._watched:
            if self._is_stopping():
                return
            self._look(watched)

    def stop(self) -> None:
        """Stop all flows and say so in their state."""
        for watched in self._watched:
            self._end(watched)
            if watched.standing.state is not State.FAILED:
                self._enter(watched, Standing(State.STOPPED, restarts=watched.standing.restarts))

    def reports(self) -> list[FlowReport]:
        return [self._report(watched) for watched in self._watched]

    def _look(self, watched: _Watched) -> None:
        wish = watched.directory.wish()
        step = next_step(watched.standing, wish, self._clock.monotonic())
        try:
            if step is Step.START:
                self._start(watched, wish)
            elif step is Step.STOP:
                self._end(watched)
                self._enter(watched, paused(watched.standing, wish))
            elif watched.running is not None:
                self._follow(watched, watched.running)
        except (FlowRunsElsewhere, OSError) as fault:
            # Somebody else has the flow, or its directory cannot be used now: both may be over at the next try.
            self._fail(watched, str(fault), is_final=False, wish=wish)
        except FlowFailed as fault:
            self._fail(watched, str(fault), is_final=fault.is_final, wish=wish)

    def _start(self, watched: _Watched, wish: Wish) -> None:
        watched.held.enter_context(watched.directory.locked())
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
        self._save(watched)

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
        self._save(watched)
        if standing.state in (State.RUNNING, State.PAUSED, State.STOPPED):
            self._tell(f"{watched.flow.name}: {standing.state}")

    def _save(self, watched: _Watched) -> None:
        """Write down how it stands, unless another process runs the flow: then that one's report counts."""
        try:
            if watched.running is not None or not watched.directory.is_locked():
                watched.directory.save_report(self._report(watched))
        except OSError as fault:
            # Nothing lives by the file, so a full disk must not end flows that write elsewhere.
            self._tell(f"{watched.flow.name}: its state was not written down: {fault}")

    def _report(self, watched: _Watched) -> FlowReport:
        total = _sum(watched.before, watched.progress)
        return FlowReport(
            name=watched.flow.name,
            state=watched.standing.state,
            cause=watched.standing.cause,
            since=watched.since,
            updated=self._now(),
            restarts=watched.standing.restarts,
            batch=total.batch,
            rows=total.rows,
            rows_per_second=total.rows_per_second,
            batch_seconds=total.batch_seconds,
            lag=total.lag,
            bad_rows=total.bad_rows,
            pid=os.getpid(),
        )

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_us() / 1_000_000, UTC).isoformat(timespec="milliseconds")


def _sum(before: Progress, now: Progress) -> Progress:
    return Progress(
        before.batches + now.batches,
        before.batch if now.batch is None else now.batch,
        before.rows + now.rows,
        now.rows_per_second,
        now.batch_seconds,
        before.lag if now.lag is None else now.lag,
        before.bad_rows + now.bad_rows,
    )


def _line(name: str, progress: Progress) -> str:
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    return f"{name}: batch {progress.batch}: {progress.rows:,} rows read{bad}{lag} ({progress.batch_seconds:.1f} s)"
