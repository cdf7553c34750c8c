"""Flows on a real Spark and a real server: what comes out is what plain Python makes of the same messages."""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import DataFrame, SparkSession

from fixtures.fix_spark import Queues, forget_last_commit
from fixtures.flow_control import ScriptedControl
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from forebay.flows import (
    ActionContext,
    ClassAction,
    DataFrameAction,
    Flow,
    QueueSink,
    Source,
    SqlAction,
    StaticTable,
    Table,
    TableSink,
    Watermark,
)
from forebay.flows.definition import Action
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.supervision import State
from forebay.flows.worker import FlowFailed, Progress, Worker
from forebay.spark import exact_files
from forebay.spark.builtin.json_parsing import parsed
from forebay.spark.flow_plan import flow_plan
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.testing.running_server import RunningServer

START = datetime(2026, 1, 1, tzinfo=UTC)
LARGEST = 10 * 2**20
"""Bytes of the largest payload that a server takes."""
USERS = {"ann": "eu", "bob": "us", "eve": "eu"}

RunOnce = Callable[[Flow], Progress]


@pytest.fixture
def run_once(spark: SparkSession, spark_server: RunningServer, tmp_path: Path) -> RunOnce:
    """Runs a flow over what is there now."""

    def run(flow: Flow) -> Progress:
        runner = SparkRunner(spark, Connection((spark_server.url,)), is_once=True)
        return runner.start(flow, FlowDirectory(tmp_path, flow.name)).wait()

    return run


def a_flow(*actions: Action, **more: Any) -> Flow:
    name = fresh("flow")
    given: dict[str, Any] = {
        "source": Source(queue=f"{name}-in"),
        "sink": QueueSink(queue=f"{name}-out"),
        **more,
    }
    return Flow(name=name, mode="stream", actions=actions, **given)


def documents(queues: Queues, queue: str | None) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in queues.payloads(str(queue))]


def put_json(queues: Queues, queue: str, rows: list[dict[str, Any]]) -> None:
    queues.put(queue, {"payload": [json.dumps(row).encode() for row in rows]})


def clicks(count: int) -> list[dict[str, Any]]:
    users = [*USERS, "nobody"]
    return [
        {"user": users[n % 4], "at": (START + timedelta(seconds=n)).isoformat(), "ms": n * 7 % 1000}
        for n in range(count)
    ]


def per_minute(rows: list[dict[str, Any]]) -> dict[tuple[datetime, str], tuple[int, float]]:
    found: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for row in rows:
        if row["user"] in USERS:
            at = datetime.fromisoformat(row["at"])
            found[at.replace(second=0, microsecond=0), USERS[row["user"]]].append(row["ms"])
    return {key: (len(ms), sum(ms) / len(ms)) for key, ms in found.items()}


def test_clicks_are_parsed_enriched_and_rolled_up_as_plain_python_does_it(
    queues: Queues, run_once: RunOnce, tmp_path: Path
) -> None:
    (tmp_path / "users.csv").write_text("id,region\n" + "".join(f"{u},{r}\n" for u, r in USERS.items()))
    flow = a_flow(
        SqlAction(name="enrich", sql="SELECT c.*, u.region FROM input c JOIN users u ON c.user = u.id"),
        ClassAction(
            name="per_minute",
            class_name="rollup",
            params={
                "window": "1m",
                "time": "at",
                "keys": ["region"],
                "aggregates": {"clicks": "count(*)", "ms": "avg(ms)"},
            },
        ),
        tables={"users": StaticTable(format="csv", path=str(tmp_path / "users.csv"), options={"header": "true"})},
        watermark=Watermark(column="at", delay=timedelta(seconds=10)),
        source=Source(
            queue=fresh("clicks"),
            payload_as="json",
            schema="user STRING, at TIMESTAMP, ms INT",
            max_offsets_per_trigger=300,
        ),
    )
    rows = clicks(400)
    # A click far ahead closes the windows of all others.
    last = {"user": "ann", "at": (START + timedelta(hours=1)).isoformat(), "ms": 0}
    put_json(queues, flow.source.queue, [*rows, last])
    assert run_once(flow).rows == 401
    found = {
        (datetime.fromisoformat(row["window_start"]), row["region"]): (row["clicks"], row["ms"])
        for row in documents(queues, flow.output_queues[0])
    }
    assert found == per_minute(rows)
    assert queues.lag(flow.group, flow.source.queue) == 0


def test_only_the_main_query_moves_the_cursor(spark: SparkSession) -> None:
    checking = a_flow(ClassAction(name="parse", class_name="parse_json", params={"schema": "n INT"}))
    plan = flow_plan(spark, checking)
    assert plan.bad is not None
    assert f"group={checking.group}" in _explained(plan.output)
    assert "group=" not in _explained(plan.bad)
    assert flow_plan(spark, a_flow()).bad is None


def test_payloads_are_parsed_once(spark: SparkSession) -> None:
    frame = spark.sql("SELECT CAST(id AS STRING) AS payload, id AS seq FROM range(1)")
    physical = parsed(frame, "payload", "n INT")._jdf.queryExecution().executedPlan().toString()
    assert physical.count("from_json(") == 1


def _explained(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())


BAD = [b"\xff\xfe", b'"text"', b"", b"[1]", b"null", b'{"n": "x"}', b'{"n": 1', b'{"n": 5000000000}']


def test_bad_records_go_to_the_error_queue_as_they_came_and_the_rest_goes_on(queues: Queues, run_once: RunOnce) -> None:
    name = fresh("judge")
    flow = Flow(
        name=name,
        mode="stream",
        source=Source(queue=f"{name}-in", payload_as="json", schema="n INT, s STRING", max_payload=100),
        sink=QueueSink(queue=f"{name}-out"),
    )
    good = [f'{{"n": {n}, "s": "ü{n}"}}'.encode() for n in range(20)]
    large = b'{"n": 1, "s": "%s"}' % (b"x" * 100)
    queues.put(flow.source.queue, {"payload": [*good[:10], *BAD, large, *good[10:]]})
    progress = run_once(flow)
    assert documents(queues, flow.output_queues[0]) == [json.loads(one) for one in good]
    letters = queues.rows(flow.errors_to)
    assert sorted(letter["payload"] for letter in letters) == sorted([*BAD, large])
    headers = {letter["payload"]: json.loads(letter["headers"]) for letter in letters}
    assert headers[large]["cause"] == f"{len(large)} bytes, more than 100"
    assert headers[b"\xff\xfe"]["cause"] == "not UTF-8"
    assert {header["cause"] for payload, header in headers.items() if payload in BAD[1:]} == {
        "not a JSON object of the schema"
    }
    assert [headers[payload]["seq"] for payload in BAD] == list(range(11, 11 + len(BAD)))
    assert {(header["flow"], header["queue"]) for header in headers.values()} == {(name, flow.source.queue)}
    assert progress.bad_rows == len(BAD) + 1


def test_records_of_10_mib_pass_if_they_are_good_and_are_set_aside_whole_if_not(
    queues: Queues, run_once: RunOnce
) -> None:
    name = fresh("heavy")
    source = Source(queue=f"{name}-in", payload_as="json", schema="n INT, s STRING", max_payload=LARGEST - 1)
    flow = Flow(name=name, mode="stream", source=source, sink=QueueSink(queue=f"{name}-out"))
    good = [b'{"n": 1}', b'{"n": 2, "s": "' + b"x" * (LARGEST - 18) + b'"}', b'{"n": 3}']
    bad = {
        b"\xff" * (LARGEST - 1): "not UTF-8",
        b"[" * (LARGEST - 1): "not a JSON object of the schema",
        b'{"n": 4}'.ljust(LARGEST): f"{LARGEST} bytes, more than {LARGEST - 1}",
    }
    for payload in [*good[:2], *bad, *good[2:]]:
        queues.put(flow.source.queue, {"payload": [payload]})
    assert run_once(flow).bad_rows == len(bad)
    assert documents(queues, flow.output_queues[0]) == [json.loads(one) for one in good]
    letters = queues.rows(flow.errors_to)
    assert {letter["payload"]: json.loads(letter["headers"])["cause"] for letter in letters} == bad
    assert len(letters) == len(bad)


def test_flow_from_the_latest_misses_no_bad_record_behind_its_first_good_one(
    spark: SparkSession, spark_server: RunningServer, queues: Queues, tmp_path: Path
) -> None:
    parse = ClassAction(name="parse", class_name="parse_json", params={"schema": "n INT"})
    flow = a_flow(parse, source=Source(queue=fresh("in"), starting_offsets="latest"))
    queues.put(flow.source.queue, {"payload": [b'{"n": 0}', b"bad 0"]})
    numbers, is_over = itertools.count(1), Event()

    def produce() -> None:
        while not is_over.is_set():
            number = next(numbers)
            queues.put(flow.source.queue, {"payload": [b'{"n": %d}' % number, b"bad %d" % number]})

    with ThreadPoolExecutor(1) as producer:
        pushing = producer.submit(produce)
        running = SparkRunner(spark, Connection((spark_server.url,))).start(flow, FlowDirectory(tmp_path, flow.name))
        try:
            wait_until(lambda: running.check().rows >= 20)
            is_over.set()
            pushing.result()
            last = next(numbers) - 1
            wait_until(lambda: running.check() and {b"bad %d" % last} <= set(queues.payloads(flow.errors_to)))
            wait_until(lambda: {"n": last} in documents(queues, flow.output_queues[0]))
        finally:
            is_over.set()
            running.stop()
    good = sorted(row["n"] for row in documents(queues, flow.output_queues[0]))
    assert good[0] > 0
    assert good == list(range(good[0], last + 1))
    bad = sorted(int(payload.split()[1]) for payload in queues.payloads(flow.errors_to))
    assert 0 < bad[0] <= good[0]
    assert bad == list(range(bad[0], last + 1))


def test_batches_that_are_repeated_after_a_crash_reach_both_queues_once(
    queues: Queues, run_once: RunOnce, tmp_path: Path
) -> None:
    parse = ClassAction(name="parse", class_name="parse_json", params={"schema": "n INT"})
    flow = a_flow(parse)
    for batch in range(2):
        numbers = range(batch * 10, batch * 10 + 10)
        payloads = [b'{"n": %d}' % n if n % 2 else b"bad %d" % n for n in numbers]
        queues.put(flow.source.queue, {"payload": payloads})
        run_once(flow)
        directory = FlowDirectory(tmp_path, flow.name)
        for checkpoint in (directory.checkpoint(flow), directory.errors_checkpoint(flow)):
            assert forget_last_commit(Path(checkpoint)) == batch
    run_once(flow)
    assert sorted(row["n"] for row in documents(queues, flow.output_queues[0])) == list(range(1, 20, 2))
    assert sorted(queues.payloads(flow.errors_to)) == sorted(b"bad %d" % n for n in range(0, 20, 2))


def test_letters_say_whether_they_hold_the_message_or_a_row_that_was_made_of_it(
    queues: Queues, run_once: RunOnce
) -> None:
    text = SqlAction(name="text", sql="SELECT seq, partition, string(payload) AS text FROM input WHERE seq > 1")
    parses = {"holds": "input", "payload": b"no JSON"}
    parses_text = {"holds": "row", "payload": None}
    for actions, column, expected in (((), "payload", parses), ((text,), "text", parses_text)):
        params = {"schema": "n INT", "column": column}
        flow = a_flow(*actions, ClassAction(name="parse", class_name="parse_json", params=params))
        queues.put(flow.source.queue, {"payload": [b'{"n":1}', b"no JSON"], "partition": ["a", "b"]})
        run_once(flow)
        [letter] = queues.rows(flow.errors_to)
        told = json.loads(letter["headers"])
        assert (told["holds"], told["seq"], told["partition"]) == (expected["holds"], 2, "b")
        assert expected["payload"] in (None, letter["payload"])


def test_flow_without_actions_copies_messages_with_partition_and_headers(queues: Queues, run_once: RunOnce) -> None:
    flow = a_flow()
    rows: dict[str, list[Any]] = {
        "payload": [b"\x00\xff", b"1"],
        "partition": ["p", "q"],
        "headers": ['{"a":"b"}', None],
    }
    queues.put(flow.source.queue, rows)
    run_once(flow)
    copied = [(row["payload"], row["partition"], row["headers"]) for row in queues.rows(str(flow.output_queues[0]))]
    assert copied == [(b"\x00\xff", "p", '{"a":"b"}'), (b"1", "q", None)]


def test_rows_that_share_a_transaction_id_are_all_kept_unless_the_sink_counts_it(
    queues: Queues, run_once: RunOnce
) -> None:
    sql = "SELECT payload, transaction_id, explode(array(1, 2)) AS n FROM input"
    double = SqlAction(name="double", sql=f"SELECT payload, transaction_id FROM ({sql})")
    plain = a_flow(double)
    keeping = a_flow(double, sink=QueueSink(queue=fresh("kept"), keep_transaction_ids=True))
    for flow, copies in ((plain, 2), (keeping, 1)):
        queues.put(flow.source.queue, {"payload": [b"1"], "transaction_id": ["only"]})
        run_once(flow)
        assert len(queues.payloads(str(flow.output_queues[0]))) == copies


def test_every_reader_of_a_table_sees_each_row_once_after_a_kill_in_the_middle_of_a_batch(
    spark: SparkSession, queues: Queues, run_once: RunOnce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    table = Table(format="parquet", path=str(path), partition_by=("half",))
    parse = SqlAction(name="parse", sql="SELECT int(string(payload)) AS n, int(string(payload)) % 2 AS half FROM input")
    flow = a_flow(parse, sink=TableSink(table=table), source=Source(queue=fresh("in"), min_partitions=2))
    queues.put_numbers(flow.source.queue, 0, 50)
    run_once(flow)
    # As a driver leaves it that dies while it moves the files, and one that dies before it notes the batch.
    moved: list[str] = []

    def dying(source: str, target: str) -> None:
        if len(moved) == 3:
            raise OSError("killed")
        Path(source).replace(target)
        moved.append(target)

    queues.put_numbers(flow.source.queue, 50, 100)
    with monkeypatch.context() as patched:
        patched.setattr(exact_files, "_replace", dying)
        with pytest.raises(FlowFailed, match="killed"):
            run_once(flow)
    assert len(seen := _plainly_read(path)) == len(set(seen))
    run_once(flow)
    forget_last_commit(Path(FlowDirectory(tmp_path, flow.name).checkpoint(flow)))
    run_once(flow)
    assert _plainly_read(path) == list(range(100))
    assert sorted(row.n for row in spark.read.parquet(str(path)).collect()) == list(range(100))
    pattern = f"{path}/*/*.parquet"
    query = f"SELECT count(*), count(DISTINCT n), sum(half) FROM read_parquet('{pattern}')"
    assert duckdb.connect().execute(query).fetchall() == [(100, 100, 50)]


def test_table_that_sparks_own_sink_has_begun_goes_on_with_it(
    spark: SparkSession, queues: Queues, run_once: RunOnce, tmp_path: Path
) -> None:
    parse = SqlAction(name="parse", sql="SELECT int(string(payload)) AS n FROM input")
    old = Table(format="parquet", path=str(tmp_path / "table"))
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    flow = a_flow(parse, sink=TableSink(table=old))
    queues.put_numbers(flow.source.queue, 0, 5)
    run_once(flow)
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "table")).collect()) == list(range(5))
    assert not (tmp_path / "table" / "_forebay").exists()


def _plainly_read(path: Path) -> list[int]:
    return sorted(pa.dataset.dataset(path, partitioning="hive").to_table()["n"].to_pylist())


def test_deduplicate_sample_and_redact_do_what_they_say(queues: Queues, run_once: RunOnce) -> None:
    flow = a_flow(
        ClassAction(name="parse", class_name="parse_json", params={"schema": "id INT, user STRUCT<mail: STRING>"}),
        ClassAction(name="some", class_name="sample", params={"fraction": 0.5, "by": ["id"]}),
        ClassAction(name="once", class_name="deduplicate", params={"keys": ["id"], "within": "1h"}),
        ClassAction(name="hide", class_name="redact", params={"columns": ["user.mail"], "by": "mask"}),
    )
    rows = [{"id": n % 200, "user": {"mail": f"Ann{n % 10}@x.org"}} for n in range(400)]
    put_json(queues, flow.source.queue, rows)
    run_once(flow)
    found = documents(queues, flow.output_queues[0])
    ids = [row["id"] for row in found]
    assert len(ids) == len(set(ids))
    assert 60 <= len(ids) <= 140
    assert {row["user"]["mail"] for row in found} == {"Xxxn@x.xxx"}


def test_flow_that_does_not_compile_fails_alone_and_paused_flows_go_on_where_they_were(
    spark: SparkSession, spark_server: RunningServer, queues: Queues, tmp_path: Path
) -> None:
    broken = a_flow(SqlAction(name="oops", sql="SELECT no_such_column FROM input"))
    fine = a_flow()
    told: list[str] = []
    runner = SparkRunner(spark, Connection((spark_server.url,)))
    control = ScriptedControl()
    worker = Worker([broken, fine], runner, tmp_path, control, tell=told.append)

    def copied(count: int) -> bool:
        worker.step()
        return len(queues.payloads(str(fine.output_queues[0]))) >= count

    try:
        worker.step()
        assert {report.name: report.state for report in worker.reports()} == {
            broken.name: State.FAILED,
            fine.name: State.RUNNING,
        }
        assert "no_such_column" in worker.reports()[0].cause
        queues.put_numbers(fine.source.queue, 0, 10)
        wait_until(lambda: _is_there(queues, fine) and copied(10))
        wait_until(lambda: copied(10) and any(line.startswith(f"{fine.name}: batch ") for line in told))
        control.pause(fine.name)
        worker.step()
        assert worker.reports()[1].state is State.PAUSED
        queues.put_numbers(fine.source.queue, 10, 20)
        control.resume(fine.name)
        wait_until(lambda: copied(20))
        assert sorted(map(int, queues.payloads(str(fine.output_queues[0])))) == list(range(20))
    finally:
        worker.stop()
    report = control.reports[fine.name]
    assert (report.state, report.rows >= 10) == (State.STOPPED, True)


class Unreachable(DataFrameAction):
    """An action that asks something else when it is made into a plan, and gets no answer."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        raise ConnectionRefusedError("the price list does not answer")


def test_action_that_gets_no_answer_fails_its_flow_for_now_and_not_the_worker(
    spark: SparkSession, spark_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ModuleType("shop_unreachable")
    shop.Unreachable = Unreachable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_unreachable", shop)
    flow = a_flow(ClassAction(name="ask", class_name="shop_unreachable.Unreachable"))
    worker = Worker([flow], SparkRunner(spark, Connection((spark_server.url,))), tmp_path, ScriptedControl())
    worker.step()
    (report,) = worker.reports()
    assert (report.state, report.cause) == (State.RESTARTING, "the price list does not answer")


def _is_there(queues: Queues, flow: Flow) -> bool:
    found = queues.ask("GET", "/api/v1/resources/queues?limit=1000")["queues"]
    return flow.output_queues[0] in {queue["name"] for queue in found}
