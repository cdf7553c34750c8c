"""Flows on parcels, on a real Spark and a real server: what comes out is what plain Python makes of the messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues
from fixtures.parcel_flows import Run, a_flow, documents, history, json_source, put_json
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from forebay.flows import (
    ClassAction,
    Flow,
    QueueSink,
    Retry,
    Source,
    SqlAction,
    Table,
    TableSink,
)
from forebay.flows.definition import Action, ErrorFilter, Join
from forebay.flows.supervision import State

pytestmark = pytest.mark.usefixtures("parcel_actions")


def counted(queues: Queues, flow: Flow) -> dict[str, Any]:
    """What the server says that was done for the flow; up to a second old."""
    report = {"name": flow.name, "state": "running", "queue": flow.source.queue}
    queues.ask("POST", "/api/v1/flows/reports", {"worker": "w", "names": [flow.name], "flows": [report]})
    shown = queues.ask("GET", f"/api/v1/flows/{flow.name}")["report"]
    return {name: shown[name] for name in ("rows", "badRows", "skippedRows", "cause")}


def test_trace_of_a_push_is_carried_through_record_actions_and_sql(queues: Queues, run: Run) -> None:
    trace, header = "4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    flow = a_flow(
        ClassAction(name="judge", class_name="parcel_actions.Judge"),
        SqlAction(name="kept", sql="SELECT did, headers, trace_id, n FROM input"),
    )
    items = [{"queue": flow.source.queue, "payload": n} for n in (4, 5)]
    queues.ask("POST", "/api/v1/push", {"items": items[:1]}, headers={"traceparent": header})
    queues.ask("POST", "/api/v1/push", {"items": items[1:]})
    run(flow)
    first, second = queues.rows(flow.output_queues[0])
    assert (json.loads(first["payload"])["n"], first["trace_id"]) == (4, trace)
    assert json.loads(first["headers"])["traceparent"] == header
    assert (json.loads(second["payload"])["n"], second["trace_id"], second["headers"]) == (5, None, None)


def test_rows_reach_the_queue_once_and_bad_records_the_error_queue(queues: Queues, run: Run) -> None:
    flow = a_flow(
        SqlAction(name="slow", sql="SELECT did, user, ms * 2 AS twice FROM input WHERE ms >= 500"),
        source=json_source("user STRING, ms INT"),
    )
    rows: list[dict[str, Any]] = [{"user": f"u{n % 3}", "ms": n * 7 % 1000} for n in range(450)]
    put_json(queues, flow, rows)
    queues.put(flow.source.queue, {"payload": [b"{no json", b'{"user": "x", "ms": "no number"}']})
    found = run(flow)
    expected = [{"user": row["user"], "twice": row["ms"] * 2} for row in rows if row["ms"] >= 500]
    assert documents(queues, flow.output_queues[0]) == expected
    assert queues.payloads(flow.errors_to) == [b"{no json", b'{"user": "x", "ms": "no number"}']
    assert sum(one["messages"] for one in found) == 452
    [event] = [event for event in history(queues, found[0]["did"]) if event["event"] == "ACTION"]
    assert (event["action"], event["rowsIn"]) == ("slow", 100)
    assert event["rowsOut"] == sum(row["ms"] >= 500 for row in rows[:100])


def test_an_isolated_action_gets_the_rows_of_the_chain_before_with_their_types(queues: Queues, run: Run) -> None:
    first = SqlAction(
        name="parse",
        sql="SELECT did, seq, cast(payload AS string) AS text, timestamp'2026-01-01 00:00:00.123456' AS at, "
        "cast(seq AS decimal(20, 3)) AS exact, payload AS raw, map('a', seq) AS by_name, array(seq, null) AS some "
        "FROM input",
    )
    second = SqlAction(
        name="show",
        isolate=True,
        sql="SELECT typeof(exact) AS type, exact, date_format(at, 'SSSSSS') AS micros, base64(raw) AS raw, "
        "by_name['a'] AS named, size(some) AS size, text FROM input",
    )
    flow = a_flow(first, second)
    queues.put_numbers(flow.source.queue, 0, 250)
    found = run(flow)
    documents_found = documents(queues, flow.output_queues[0])
    assert [one["text"] for one in documents_found] == [str(n) for n in range(250)]
    assert documents_found[7] == {
        "type": "decimal(20,3)",
        "exact": 8.0,
        "micros": "123456",
        "raw": "Nw==",
        "named": 8,
        "size": 2,
        "text": "7",
    }
    assert {one["state"] for one in found} == {"COMPLETE"}
    assert [event["action"] for event in history(queues, found[0]["did"]) if event["event"] == "COMPLETE"] == [
        "parse",
        "show",
    ]


def test_a_row_goes_to_every_sink_whose_condition_it_fits(queues: Queues, run: Run, tmp_path: Path) -> None:
    name = fresh("split")
    flow = a_flow(
        SqlAction(name="number", sql="SELECT did, cast(cast(payload AS string) AS int) AS n FROM input"),
        sinks=(
            QueueSink(queue=f"{name}-even", where="n % 2 = 0"),
            QueueSink(queue=f"{name}-third", where="n % 3 = 0"),
            TableSink(table=Table(path=str(tmp_path / "all"))),
        ),
    )
    queues.put_numbers(flow.source.queue, 0, 300)
    run(flow)
    assert [one["n"] for one in documents(queues, f"{name}-even")] == list(range(0, 300, 2))
    assert [one["n"] for one in documents(queues, f"{name}-third")] == list(range(0, 300, 3))
    table = pyarrow.dataset.dataset(tmp_path / "all", format="parquet").to_table()
    assert sorted(table.column("n").to_pylist()) == list(range(300))
    assert set(table.column_names) == {"did", "n"}


def test_record_actions_split_filter_and_refuse_record_by_record(queues: Queues, run: Run) -> None:
    flow = a_flow(
        ClassAction(name="judge", class_name="parcel_actions.Judge"),
        SqlAction(name="known", sql="SELECT did, n, word FROM input"),
    )
    queues.put_numbers(flow.source.queue, 0, 200)
    found = run(flow)
    rows = documents(queues, flow.output_queues[0])
    expected = Counter(n for n in range(200) for _ in range({1: 0, 2: 0, 3: 2}.get(n % 10, 1)))
    assert Counter(row["n"] for row in rows) == expected
    assert {row["word"] for row in rows} == {"first", "second"} | {one["did"] for one in found}
    assert sorted(int(payload) for payload in queues.payloads(flow.errors_to)) == [n for n in range(200) if n % 10 == 1]
    shown = queues.ask("GET", f"/api/v1/parcels/{found[0]['did']}")
    assert shown["parcel"]["annotations"] == {"seen": "yes"}
    last = [event for event in shown["events"] if event["event"] == "COMPLETE"][-1]
    assert (last["rowsIn"], last["filtered"], last["bad"]) == (100, 10, 10)


def test_a_record_on_which_sql_fails_is_set_aside_and_the_rest_goes_on(queues: Queues, run: Run) -> None:
    flow = a_flow(
        SqlAction(name="divide", sql="SELECT 100 / (cast(cast(payload AS string) AS int) - 77) AS share FROM input")
    )
    queues.put_numbers(flow.source.queue, 0, 200)
    found = run(flow)
    assert len(documents(queues, flow.output_queues[0])) == 199
    assert queues.payloads(flow.errors_to) == [b"77"]
    assert {one["state"] for one in found} == {"COMPLETE"}


@pytest.mark.parametrize(
    "action",
    [
        SqlAction(
            name="share", sql="SELECT did, 100 / (cast(cast(payload AS string) AS int) - 150) AS share FROM input"
        ),
        ClassAction(name="share", class_name="parcel_actions.Refuses"),
    ],
    ids=["sql", "dataframe"],
)
def test_with_on_error_skip_a_record_that_fails_is_left_out_and_counted(
    action: Action, queues: Queues, run: Run
) -> None:
    flow = a_flow(action, on_error="skip")
    queues.put_numbers(flow.source.queue, 0, 300)
    found = run(flow)
    assert [one["state"] for one in found] == ["COMPLETE"] * 3
    shares = [row["share"] for row in documents(queues, flow.output_queues[0])]
    assert shares == [100 / (n - 150) for n in range(300) if n != 150]
    assert queues.size(flow.errors_to) == 0
    skipped = [history(queues, one["did"])[-1].get("filtered") or 0 for one in found]
    assert skipped == [0, 1, 0]
    wait_until(lambda: counted(queues, flow) == {"rows": 300, "badRows": 0, "skippedRows": 1, "cause": ""})


def test_with_on_error_fail_only_the_parcel_of_the_record_is_in_error(queues: Queues, run: Run) -> None:
    flow = a_flow(ClassAction(name="divide", class_name="parcel_actions.Refuses"), on_error="fail")
    queues.put_numbers(flow.source.queue, 0, 300)
    found = run(flow)
    assert [one["state"] for one in found] == ["COMPLETE", "ERROR", "COMPLETE"]
    assert "DIVIDE_BY_ZERO" in found[1]["error"]
    assert len(documents(queues, flow.output_queues[0])) == 200
    wait_until(lambda: counted(queues, flow)["rows"] == 200)
    assert counted(queues, flow)["cause"].startswith("1 parcel in ERROR, the newest: ")


def test_a_flow_that_does_not_compile_is_not_cut_and_says_why(
    queues: Queues, working: Callable[..., Any], parcels: Callable[[Flow], list[dict[str, Any]]]
) -> None:
    broken = a_flow(SqlAction(name="wrong", sql="SELECT missing FROM input"))
    lacking = a_flow(
        SqlAction(name="a", sql="SELECT seq FROM input"), SqlAction(name="b", sql="TABLE input", isolate=True)
    )
    with working(broken, lacking) as worker:
        reports = {report.name: report for report in worker.reports()}
    assert {report.state for report in reports.values()} == {State.FAILED}
    assert "missing" in reports[broken.name].cause
    assert "SELECT did" in reports[lacking.name].cause
    assert parcels(broken) == []


def test_a_flow_that_does_not_compile_any_more_goes_on_as_it_was_defined_last(
    queues: Queues, working: Callable[..., Any]
) -> None:
    old = a_flow(SqlAction(name="mark", sql="SELECT 'old' AS version FROM input"))
    queues.put_numbers(old.source.queue, 0, 100)
    with working(old):
        wait_until(lambda: queues.size(old.output_queues[0]) == 100)
    broken = Flow(
        name=old.name,
        source=old.source,
        actions=(SqlAction(name="mark", sql="SELECT missing FROM input"),),
        sink=old.sink,
    )
    with working(broken) as worker:
        assert [report.state for report in worker.reports()] == [State.FAILED]
        queues.put_numbers(old.source.queue, 100, 200)
        wait_until(lambda: queues.size(old.output_queues[0]) == 200)
    assert Counter(one["version"] for one in documents(queues, old.output_queues[0])) == {"old": 200}


def test_parcels_are_worked_on_as_they_were_cut(
    queues: Queues,
    working: Callable[..., Any],
    run: Run,
    parcels: Callable[[Flow], list[dict[str, Any]]],
) -> None:
    old = a_flow(SqlAction(name="mark", sql="SELECT 'old' AS version FROM input"))
    queues.put_numbers(old.source.queue, 0, 100)
    with working(old, lanes=1, lease_parcels=1):
        queues.ask("POST", f"/api/v1/dispatch/flows/{old.name}/pause", {})
    wait_until(lambda: sum(one["messages"] for one in parcels(old)) == 100)
    new = Flow(
        name=old.name,
        source=old.source,
        actions=(SqlAction(name="mark", sql="SELECT 'new' AS version FROM input"),),
        sink=old.sink,
    )
    with working(new) as worker:
        queues.put_numbers(old.source.queue, 100, 200)
        queues.ask("POST", f"/api/v1/dispatch/flows/{old.name}/resume", {})
        wait_until(lambda: worker.check() is None and queues.size(old.output_queues[0]) == 200)
    assert Counter(one["version"] for one in documents(queues, old.output_queues[0])) == {"old": 100, "new": 100}


def test_an_action_that_takes_too_long_is_cancelled_and_its_parcel_is_in_error(queues: Queues, run: Run) -> None:
    flow = a_flow(ClassAction(name="sleep", class_name="parcel_actions.Sleeps", time_limit=timedelta(seconds=3)))
    queues.put_numbers(flow.source.queue, 0, 10)
    [found] = run(flow)
    assert found["state"] == "ERROR"
    assert "took longer than 3 s" in found["error"]


def test_what_a_worker_is_at_is_shown_by_the_server_and_named_on_sparks_pages(
    queues: Queues,
    working: Callable[..., Any],
    parcels: Callable[[Flow], list[dict[str, Any]]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    action = ClassAction(name="look", class_name="parcel_actions.WaitsForASign", params={"sign": str(tmp_path / "go")})
    flow = a_flow(action)
    queues.put_numbers(flow.source.queue, 0, 10)

    def running() -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = queues.ask("GET", "/api/v2/metrics/queues/running")["tasks"]
        return [task for task in tasks if task["actionClass"] == "parcel_actions.WaitsForASign"]

    with working(flow) as worker:
        wait_until(lambda: worker.check() or running())
        [task] = running()
        [parcel] = parcels(flow)
        assert (task["actionName"], task["did"]) == ("look", parcel["did"])
        assert task["appName"].startswith("worker")
        wait_until(lambda: worker.check() or any(flow.name in text for text in described_jobs(spark)))
        [text] = {text for text in described_jobs(spark) if flow.name in text}
        assert text.startswith(f"{flow.name} / look / lease ")
        (tmp_path / "go").touch()
        wait_until(lambda: worker.check() or queues.size(flow.output_queues[0]) == 10)
        wait_until(lambda: worker.check() or running() == [])


def described_jobs(spark: SparkSession) -> list[str]:
    """What Spark's page of jobs says of each."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(at).description() for at in range(jobs.size())]
    return [text.get() for text in found if text.isDefined()]


def test_one_poison_record_among_ten_thousand_is_set_aside_alone(queues: Queues, run: Run) -> None:
    flow = a_flow(
        SqlAction(name="divide", sql="SELECT 100 / (cast(cast(payload AS string) AS int) - 7777) AS share FROM input"),
        source=Source(queue=fresh("in"), parcel_messages=2_500),
    )
    queues.put_numbers(flow.source.queue, 0, 10_000)
    found = run(flow)
    assert queues.size(flow.output_queues[0]) == 9_999
    assert queues.payloads(flow.errors_to) == [b"7777"]
    assert {one["state"] for one in found} == {"COMPLETE"}


def test_parcels_that_are_joined_are_one_input(queues: Queues, run: Run) -> None:
    joined = SqlAction(
        name="sum",
        sql="SELECT did, sum(cast(cast(payload AS string) AS int)) AS total, count(*) AS rows FROM input GROUP BY did",
        join=Join(max_age=timedelta(seconds=60), max=3),
    )
    flow = a_flow(joined)
    queues.put_numbers(flow.source.queue, 0, 300)
    run(flow)
    assert documents(queues, flow.output_queues[0]) == [{"total": sum(range(300)), "rows": 300}]


def test_a_timer_gives_a_row_at_its_times(
    queues: Queues, working: Callable[..., Any], parcels: Callable[[Flow], list[dict[str, Any]]]
) -> None:
    flow = a_flow(
        SqlAction(name="tick", sql="SELECT did, created_at IS NOT NULL AS has_time FROM input"),
        source=Source(cron="* * * * * *"),
    )
    with working(flow) as worker:
        wait_until(lambda: worker.check() or queues.size(flow.output_queues[0]) >= 2)
    assert {row["has_time"] for row in documents(queues, flow.output_queues[0])} == {True}
    queues.ask("POST", f"/api/v1/dispatch/flows/{flow.name}/stop", {})


def test_errors_of_a_flow_are_the_source_of_another(
    queues: Queues, run: Run, working: Callable[..., Any], parcels: Callable[[Flow], list[dict[str, Any]]]
) -> None:
    failing = a_flow(ClassAction(name="divide", class_name="parcel_actions.Refuses"), on_error="fail")
    caught = a_flow(
        SqlAction(name="keep", sql="SELECT did, cast(payload AS string) AS text FROM input"),
        source=Source(errors=ErrorFilter(flows=(failing.name,))),
    )
    queues.put_numbers(failing.source.queue, 100, 200)
    with working(caught) as worker:
        [parcel] = run(failing)
        wait_until(lambda: worker.check() or queues.size(caught.output_queues[0]) == 100)
    assert parcel["state"] == "ERROR"
    assert sorted(int(row["text"]) for row in documents(queues, caught.output_queues[0])) == list(range(100, 200))


def test_records_of_several_queues_in_one_lease_are_not_taken_for_each_other(
    queues: Queues, working: Callable[..., Any], run: Run, parcels: Callable[[Flow], list[dict[str, Any]]]
) -> None:
    fails = SqlAction(name="judge", sql="SELECT raise_error('not today') FROM input")
    failing = [a_flow(fails, on_error="fail") for _ in range(2)]
    caught = a_flow(
        SqlAction(name="share", sql="SELECT did, 60 / cast(cast(payload AS string) AS int) AS share FROM input"),
        source=Source(errors=ErrorFilter(flows=tuple(flow.name for flow in failing)), max_payload=3),
    )
    with working(caught):
        pass  # it is known now, and catches
    for flow, payloads in zip(failing, ([b"1", b"0", b"1000"], [b"2000", b"2", b"3"]), strict=True):
        queues.put(flow.source.queue, {"payload": payloads})
        run(flow)
    wait_until(lambda: len(parcels(caught)) == 2)
    with working(caught, lanes=1) as worker:
        wait_until(lambda: worker.check() or {one["state"] for one in parcels(caught)} == {"COMPLETE"})
    told = {row["payload"]: json.loads(row["headers"])["queue"] for row in queues.rows(caught.errors_to)}
    first, second = (flow.source.queue for flow in failing)
    assert told == {b"0": first, b"1000": first, b"2000": second}
    shares = [row["share"] for row in documents(queues, caught.output_queues[0])]
    assert sorted(shares) == [20.0, 30.0, 60.0]


def test_a_result_that_is_too_large_for_the_sink_is_a_bad_record(queues: Queues, run: Run) -> None:
    sql = (
        "SELECT CASE WHEN payload = cast('7' AS binary) THEN repeat('x', 11000000) ELSE 'small' END AS text FROM input"
    )
    flow = a_flow(SqlAction(name="grow", sql=sql))
    queues.put_numbers(flow.source.queue, 0, 20)
    [found] = run(flow)
    assert found["state"] == "COMPLETE"
    assert documents(queues, flow.output_queues[0]) == [{"text": "small"}] * 19
    assert queues.payloads(flow.errors_to) == [b"7"]


@pytest.mark.parametrize("action", ["Crashes", "Hungry"])
def test_an_action_that_runs_out_of_memory_takes_only_its_own_parcel_with_it(
    action: str, queues: Queues, run: Run
) -> None:
    flow = a_flow(ClassAction(name="eat", class_name=f"parcel_actions.{action}"))
    queues.put_numbers(flow.source.queue, 0, 300)
    found = run(flow)
    assert [one["state"] for one in found] == ["COMPLETE", "ERROR", "COMPLETE"]
    assert len(documents(queues, flow.output_queues[0])) == 200


def test_what_an_action_asks_may_be_away_longer_than_the_attempts_last(
    queues: Queues,
    working: Callable[..., Any],
    parcels: Callable[[Flow], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    action = ClassAction(name="price", class_name="parcel_actions.AsksAround", params={"sign": str(tmp_path / "there")})
    flow = a_flow(action, retry=Retry(max_attempts=2, delay=timedelta(milliseconds=100), multiplier=1.0))
    queues.put_numbers(flow.source.queue, 0, 50)
    with working(flow) as worker:
        wait_until(lambda: worker.check() or any(one["attempts"] > 3 for one in parcels(flow)))
        (tmp_path / "there").touch()
        wait_until(lambda: worker.check() or queues.size(flow.output_queues[0]) == 50)
    assert queues.size(flow.errors_to) == 0
