"""The worker on a runner of the test's own: what it starts, stops, writes down and tells."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from fixtures.flow_control import ScriptedControl
from forebay.flows import Flow, QueueSink, Source
from forebay.flows.flow_directory import FlowDirectory, FlowRunsElsewhere
from forebay.flows.flow_report import FlowReport
from forebay.flows.supervision import State, Wish
from forebay.flows.worker import FlowFailed, Progress, Worker
from forebay.testing.fake_clock import FakeClock


class ScriptedFlow:
    """Queries whose progress, or end, the test sets."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.fault: FlowFailed | None = None
        self.is_stopped = False

    def check(self) -> Progress:
        if self.fault is not None:
            raise self.fault
        return self.progress

    def stop(self) -> Progress:
        self.is_stopped = True
        return self.progress


class ScriptedRunner:
    def __init__(self) -> None:
        self.started: list[tuple[str, ScriptedFlow]] = []
        self.refused: dict[str, FlowFailed] = {}

    def start(self, flow: Flow, directory: FlowDirectory) -> ScriptedFlow:
        if flow.name in self.refused:
            raise self.refused[flow.name]
        running = ScriptedFlow()
        self.started.append((flow.name, running))
        return running

    def last(self, name: str) -> ScriptedFlow:
        return [running for started, running in self.started if started == name][-1]


class Bench:
    """A worker, and everything around it."""

    def __init__(self, data_dir: Path, *names: str, control: ScriptedControl | None = None) -> None:
        self.data_dir = data_dir
        self.control = control or ScriptedControl()
        self.clock = FakeClock()
        self.runner = ScriptedRunner()
        self.told: list[str] = []
        flows = [Flow(name=n, mode="stream", source=Source(queue=n), sink=QueueSink(queue="out")) for n in names]
        self.worker = Worker(
            flows, self.runner, data_dir, self.control, tell=self.told.append, clock=self.clock, jitter=lambda: 0.5
        )

    def report(self, name: str) -> FlowReport:
        return self.control.reports[name]

    def states(self) -> dict[str, State]:
        return {report.name: report.state for report in self.worker.reports()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "a", "b")


def test_flows_are_started_in_order_and_their_state_is_written_down(bench: Bench) -> None:
    bench.worker.step()
    assert [name for name, _ in bench.runner.started] == ["a", "b"]
    assert bench.report("a").state is State.RUNNING
    assert bench.told == ["a: running", "b: running"]


def test_flow_that_does_not_compile_fails_alone(bench: Bench) -> None:
    bench.runner.refused["a"] = FlowFailed("actions.0: no such column", is_final=True)
    for _ in range(3):
        bench.worker.step()
        bench.clock.advance(100)
    assert bench.states() == {"a": State.FAILED, "b": State.RUNNING}
    assert bench.report("a").cause == "actions.0: no such column"
    assert bench.told.count("a: failed: actions.0: no such column") == 1


def test_resume_starts_a_failed_flow_again(bench: Bench) -> None:
    bench.runner.refused["a"] = FlowFailed("no such table", is_final=True)
    bench.worker.step()
    del bench.runner.refused["a"]
    bench.control.resume("a")
    bench.worker.step()
    assert bench.states()["a"] is State.RUNNING


def test_query_that_dies_is_stopped_and_started_again_after_a_pause(bench: Bench) -> None:
    bench.worker.step()
    dead = bench.runner.last("a")
    dead.fault = FlowFailed("server away")
    bench.worker.step()
    assert dead.is_stopped
    assert bench.report("a").cause == "server away"
    assert bench.states() == {"a": State.RESTARTING, "b": State.RUNNING}
    assert bench.told[-1] == "a: restarting: server away; again in 1.0 s"
    bench.worker.step()
    assert bench.runner.last("a") is dead
    bench.clock.advance(1)
    bench.worker.step()
    assert bench.runner.last("a") is not dead
    assert (bench.report("a").state, bench.report("a").restarts) == (State.RUNNING, 1)


def test_counts_go_on_over_a_restart_and_a_batch_clears_the_cause(bench: Bench) -> None:
    bench.worker.step()
    bench.runner.last("a").progress = Progress(1, 0, 100, 50.0, 2.0, 7, 3)
    bench.worker.step()
    assert bench.told[-1] == "a: batch 0: 100 rows read, 3 bad, lag 7 (2.0 s)"
    bench.runner.last("a").fault = FlowFailed("x")
    bench.worker.step()
    bench.clock.advance(1)
    bench.worker.step()
    bench.runner.last("a").progress = Progress(1, 1, 11, 50.0, 2.0, 0, 1)
    bench.worker.step()
    report = bench.report("a")
    assert (report.rows, report.bad_rows, report.batch, report.lag, report.cause) == (111, 4, 1, 0, "")


def test_paused_flow_is_stopped_and_resumed_by_wish(bench: Bench) -> None:
    bench.worker.step()
    bench.control.pause("a")
    bench.worker.step()
    assert bench.runner.last("a").is_stopped
    assert bench.states() == {"a": State.PAUSED, "b": State.RUNNING}
    bench.control.resume("a")
    bench.worker.step()
    assert not bench.runner.last("a").is_stopped
    assert bench.states()["a"] is State.RUNNING


def test_flow_that_was_paused_before_the_worker_started_stays_paused(bench: Bench) -> None:
    bench.control.pause("a")
    bench.worker.step()
    assert [name for name, _ in bench.runner.started] == ["b"]


def test_pause_that_an_older_forebay_kept_in_the_directory_is_told_to_the_servers_once(bench: Bench) -> None:
    (bench.data_dir / "flows" / "a").mkdir(parents=True)
    old = bench.data_dir / "flows" / "a" / "wish.json"
    old.write_text('{"is_paused": true, "resumes": 1}')
    bench.worker.step()
    bench.worker.step()
    assert bench.control.wishes["a"].is_paused
    assert bench.states()["a"] is State.PAUSED
    assert not old.exists()


def test_no_flow_starts_before_a_server_has_said_what_is_wanted(bench: Bench) -> None:
    bench.control.is_away = True
    bench.worker.step()
    assert bench.runner.started == []
    assert bench.control.reports == {}
    bench.control.is_away = False
    bench.worker.step()
    bench.control.is_away = True
    bench.runner.last("a").progress = Progress(1, 0, 5, 50.0, 2.0, 0, 0)
    bench.worker.step()
    assert bench.states() == {"a": State.RUNNING, "b": State.RUNNING}


def test_counts_and_cause_of_the_last_worker_go_on(bench: Bench) -> None:
    bench.control.kept["a"] = FlowReport(
        name="a", state=State.RESTARTING, cause="disk full", restarts=4, batches=2, rows=100, bad_rows=7, lag=9
    )
    bench.runner.refused["a"] = FlowFailed("disk full still")
    bench.worker.step()
    assert bench.report("a").cause == "disk full still"
    del bench.runner.refused["a"]
    bench.clock.advance(2)
    bench.worker.step()
    report = bench.report("a")
    assert (report.restarts, report.rows, report.bad_rows, report.lag) == (5, 100, 7, None)
    bench.runner.last("a").progress = Progress(1, 3, 11, 50.0, 2.0, 2, 1)
    bench.worker.step()
    report = bench.report("a")
    assert (report.batches, report.rows, report.bad_rows, report.lag, report.cause) == (3, 111, 8, 2, "")


def test_flow_that_another_worker_has_is_left_to_it(bench: Bench) -> None:
    bench.control.wishes["a"] = Wish(runs_at="elsewhere:1")
    bench.worker.step()
    assert [name for name, _ in bench.runner.started] == ["b"]
    assert "a" not in bench.control.reports
    assert "runs in another worker (elsewhere:1)" in bench.told[0]
    bench.control.wishes["b"] = Wish(runs_at="elsewhere:1")
    bench.worker.step()
    assert bench.runner.last("b").is_stopped


def test_stop_stops_every_flow_and_says_so(bench: Bench) -> None:
    bench.worker.step()
    bench.worker.stop()
    assert all(running.is_stopped for _, running in bench.runner.started)
    assert bench.report("a").state is State.STOPPED


def test_worker_that_is_told_to_stop_starts_no_more_flows(bench: Bench) -> None:
    flows = [Flow(name=n, mode="stream", source=Source(queue=n), sink=QueueSink(queue="out")) for n in ("c", "d")]
    worker = Worker(flows, bench.runner, bench.data_dir, bench.control, is_stopping=lambda: bool(bench.runner.started))
    worker.step()
    worker.stop()
    assert [name for name, _ in bench.runner.started] == ["c"]
    assert [(report.name, report.state) for report in worker.reports()] == [("c", State.STOPPED)]


def test_what_was_done_between_the_last_look_and_the_stop_counts(bench: Bench) -> None:
    bench.worker.step()
    bench.runner.last("a").progress = Progress(1, 0, 5, 50.0, 2.0, 0, 0)
    bench.worker.stop()
    assert (bench.report("a").rows, bench.report("b").rows) == (5, 0)


def test_second_worker_waits_until_the_first_is_gone(bench: Bench) -> None:
    bench.worker.step()
    second = Bench(bench.data_dir, "a")
    second.worker.step()
    assert second.runner.started == []
    assert "runs in another process" in second.told[-1]
    bench.worker.stop()
    second.clock.advance(1)
    second.worker.step()
    assert second.states() == {"a": State.RUNNING}


def test_second_worker_leaves_the_report_of_the_first_alone(bench: Bench) -> None:
    bench.worker.step()
    second = Bench(bench.data_dir, "a", control=bench.control)
    second.worker.step()
    assert second.states() == {}
    assert bench.report("a").state is State.RUNNING
    second.worker.stop()
    assert bench.report("a").state is State.RUNNING


def test_flow_whose_directory_cannot_be_used_fails_alone(bench: Bench) -> None:
    (bench.data_dir / "flows").mkdir()
    (bench.data_dir / "flows" / "a").write_text("in the way")
    bench.worker.step()
    assert bench.states() == {"a": State.RESTARTING, "b": State.RUNNING}
    assert any(line.startswith("a: restarting: ") for line in bench.told)
    (bench.data_dir / "flows" / "a").unlink()
    bench.clock.advance(2)
    bench.worker.step()
    assert bench.states()["a"] is State.RUNNING
    assert bench.report("a").state is State.RUNNING


def test_lock_ends_with_its_holder(tmp_path: Path) -> None:
    directory = FlowDirectory(tmp_path, "a")
    with (
        directory.locked(),
        pytest.raises(FlowRunsElsewhere, match="runs in another process"),
        FlowDirectory(tmp_path, "a").locked(),
    ):
        pass
    with directory.locked():
        pass


def test_unreadable_files_count_as_none(tmp_path: Path) -> None:
    directory = FlowDirectory(tmp_path, "a")
    assert directory.set_asides().records == ()
    directory.path.mkdir(parents=True)
    for name in ("set-aside.json", "wish.json"):
        (directory.path / name).write_text("{")
    assert directory.set_asides().records == ()
    assert not directory.take_old_pause()


def test_lock_of_a_process_that_is_just_ending_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = FlowDirectory(tmp_path, "a")
    looking = ExitStack()
    looking.enter_context(directory.locked())
    monkeypatch.setattr("forebay.flows.flow_directory.time.sleep", lambda seconds: looking.close())
    with directory.locked():
        pass
