"""Letters of flows on parcels say what they hold, and `forebay flows retry` brings back what failed, alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fixtures.fix_spark import Queues
from fixtures.parcel_flows import FINISHED, Run, a_flow, documents, history, json_source
from fixtures.waiting import wait_until
from forebay.cli.flow_retry import retry
from forebay.flows import ClassAction, Flow, SqlAction
from forebay.testing.running_server import RunningServer

pytestmark = pytest.mark.usefixtures("parcel_actions")
N = "cast(cast(payload AS string) AS int)"
REFUSES = ClassAction(name="refuse", class_name="parcel_actions.RefusesSeven")
PARSED = {"schema": "n INT", "column": "text"}
INPUT, ROW = "input", "row"


def sql(name: str, text: str, *, isolate: bool = False) -> SqlAction:
    return SqlAction(name=name, sql=text, isolate=isolate)


def isolated(action: ClassAction) -> ClassAction:
    return replace(action, isolate=True)


NUMBERED = sql("number", f"SELECT did, seq, partition, {N} AS n FROM input WHERE seq > 5")
"""What it hands on has other seqs in the queue between than in the source, and the source's in a column."""
TEXTS = sql("text", "SELECT did, seq, string(payload) AS text FROM input WHERE seq > 5")


SOURCE = {"holds": INPUT, "seq": 8, "payload": b"7"}
BETWEEN = {"holds": INPUT, "seq": 3, "payload": b'{"seq":8,"partition":"p1","n":7}'}
ONLY_A_ROW = {"holds": ROW, "seq": None, "payload": b'{"n":7}'}
CASES: dict[str, tuple[Flow, dict[str, Any]]] = {
    "found by the search": (a_flow(sql("d", f"SELECT did, 1 / ({N} - 7) AS x FROM input")), SOURCE),
    "found by the search in a further step": (
        a_flow(NUMBERED, sql("d", "SELECT did, seq, 1 / (n - 7) AS x FROM input", isolate=True)),
        BETWEEN,
    ),
    "a record action begins": (a_flow(ClassAction(name="refuse", class_name="parcel_actions.RefusesSeventh")), SOURCE),
    "a record action begins a further step": (a_flow(NUMBERED, isolated(REFUSES)), BETWEEN),
    "behind a projection": (
        a_flow(sql("p", f"SELECT did, seq, {N} AS n FROM input"), REFUSES),
        {"holds": ROW, "seq": 8, "payload": b'{"n":7}'},
    ),
    "behind a projection that keeps the payload": (a_flow(sql("p", f"SELECT *, {N} AS n FROM input"), REFUSES), SOURCE),
    "behind a projection in a further step": (
        a_flow(NUMBERED, sql("p", "SELECT did, seq, n + 0 AS n FROM input", isolate=True), REFUSES),
        ONLY_A_ROW,
    ),
    "behind a seq of the flow's own": (
        a_flow(sql("p", f"SELECT did, seq + 1 AS seq, {N} AS n FROM input"), REFUSES),
        ONLY_A_ROW,
    ),
    "one of several rows of a message": (
        a_flow(sql("p", f"SELECT did, seq, explode(array({N}, {N} + 100)) AS n FROM input"), REFUSES),
        ONLY_A_ROW,
    ),
    "rejected by the action that begins": (
        a_flow(ClassAction(name="r", class_name="parcel_actions.RejectsSeven")),
        SOURCE,
    ),
    "rejected behind a projection": (
        a_flow(TEXTS, ClassAction(name="r", class_name="parcel_actions.RejectsSeven", params={"column": "text"})),
        {"holds": ROW, "seq": 8},
    ),
    "rejected by the action that begins a further step": (
        a_flow(
            TEXTS,
            ClassAction(name="r", class_name="parcel_actions.RejectsSeven", params={"column": "text"}, isolate=True),
        ),
        {"holds": INPUT, "seq": 3, "payload": b'{"seq":8,"text":"7"}'},
    ),
}


def test_letters_say_what_they_hold_and_of_which_message(
    queues: Queues, working: Callable[..., Any], parcels: Callable[[Flow], list[dict[str, Any]]]
) -> None:
    flows = {name: flow for name, (flow, _) in CASES.items()}
    for flow in flows.values():
        queues.put_numbers(flow.source.queue, 0, 12)
    with working(*flows.values(), lanes=3) as worker:
        wait_until(lambda: worker.check() or all(queues.size(flow.errors_to) == 1 for flow in flows.values()))
    for name, (flow, expected) in CASES.items():
        [letter] = queues.rows(flow.errors_to)
        told = json.loads(letter["headers"])
        found = {"holds": told["holds"], "seq": told.get("seq"), "payload": letter["payload"]}
        assert {key: found[key] for key in expected} == expected, name
        steps = {f".flow.{flow.name}.{action.name}": action.name for action in flow.actions}
        assert told["step"] == steps.get(told["queue"], flow.actions[0].name), name
        assert (told["queue"] == flow.source.queue) == (told["step"] == flow.actions[0].name), name
        assert told["did"] in {parcel["did"] for parcel in parcels(flow)}
        if found["holds"] == INPUT and told.get("seq"):
            read = {row["seq"]: row["payload"] for row in queues.rows(told["queue"])}
            assert read[told["seq"]] == letter["payload"], name
        if told["queue"] != flow.source.queue:
            # Columns of the row that have names of a message's are none of the message beside it.
            assert told.get("partition") in (None, "Default"), name


def test_a_record_of_a_json_source_is_set_aside_byte_for_byte(queues: Queues, run: Run) -> None:
    flow = a_flow(REFUSES, source=json_source("n INT"))
    queues.put(flow.source.queue, {"payload": [b'{"n": 6}', b'{"n": 7, "more":1.10}'], "partition": ["a", "b"]})
    run(flow)
    [letter] = queues.rows(flow.errors_to)
    told = json.loads(letter["headers"])
    assert (letter["payload"], letter["partition"]) == (b'{"n": 7, "more":1.10}', "b")
    assert (told["holds"], told["seq"], told["partition"]) == (INPUT, 2, "b")


def test_records_that_failed_behind_an_isolated_action_are_brought_back_alone(
    queues: Queues, run: Run, working: Callable[..., Any], parcels: Callable[..., Any], spark_server: RunningServer
) -> None:
    parse = SqlAction(
        name="parse",
        sql=f"SELECT did, seq, {N} AS n, timestamp'2026-01-01 00:00:00.123456' AS at, "
        "cast(1.100 AS decimal(20, 3)) AS exact, unhex('FF00') AS raw, double('NaN') AS nan, "
        f"if({N} % 2 = 0, NULL, 'odd') AS nothing, named_struct('a', {N}, 'b', array('x', NULL)) AS pair FROM input",
    )
    price = ClassAction(name="price", class_name="parcel_actions.Prices", isolate=True)
    share = sql("share", "SELECT did, 100 / (n - 30) AS share, * EXCEPT (did) FROM input")
    flow = a_flow(parse, price, share)
    queues.put_numbers(flow.source.queue, 0, 40)
    run(flow)
    out = flow.output_queues[0]
    assert sorted(row["n"] for row in documents(queues, out)) == [n for n in range(40) if n not in (10, 20, 30)]
    mended = replace(
        flow,
        actions=(
            parse,
            replace(price, params={"is_mended": True}),
            sql("share", "SELECT did, try_divide(100, n - 30) AS share, * EXCEPT (did) FROM input"),
        ),
    )
    before = {parcel["did"] for parcel in parcels(flow)}
    with working(mended) as worker:
        retry(flow.name, spark_server.url)
        wait_until(lambda: worker.check() or queues.size(out) == 40)
        retry(flow.name, spark_server.url)
        wait_until(lambda: all(parcel["state"] in FINISHED for parcel in parcels(flow)))
    rows = {row["n"]: row for row in documents(queues, out)}
    assert (queues.size(out), sorted(rows)) == (40, list(range(40)))
    same = ("at", "exact", "raw", "nan")
    assert {tuple(str(row.get(name)) for name in same) for row in rows.values()} == {
        ("2026-01-01T00:00:00.123Z", "1.1", "/wA=", "NaN")
    }
    assert all(row.get("nothing") == (None if n % 2 == 0 else "odd") for n, row in rows.items())
    assert all(row["pair"] == {"a": n, "b": ["x", None]} for n, row in rows.items())
    assert queues.size(flow.errors_to) == 3
    [started] = [parcel for parcel in parcels(flow) if parcel["did"] not in before]
    assert (started["messages"], started["version"], started["parent"] in before) == (3, 2, True)
    assert [event["event"] for event in history(queues, started["parent"])][-1] == "RETRIED"


def test_a_record_behind_a_projection_is_brought_back_as_its_message(
    queues: Queues, run: Run, working: Callable[..., Any], spark_server: RunningServer
) -> None:
    parse = sql("parse", f"SELECT did, seq, {N} AS n FROM input")
    flow = a_flow(parse, REFUSES)
    queues.put_numbers(flow.source.queue, 0, 12)
    run(flow)
    mended = replace(flow, actions=(parse, replace(REFUSES, params={"is_mended": True})))
    with working(mended) as worker:
        retry(flow.name, spark_server.url)
        wait_until(lambda: worker.check() or queues.size(flow.output_queues[0]) == 12)
    assert sorted(row["n"] for row in documents(queues, flow.output_queues[0])) == list(range(12))
    assert Counter(queues.payloads(flow.source.queue)) == Counter([*(b"%d" % n for n in range(12)), b"7"])


def test_a_record_of_which_other_rows_went_on_stays(
    queues: Queues, run: Run, spark_server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = a_flow(ClassAction(name="split", class_name="parcel_actions.Splits"), REFUSES)
    queues.put_numbers(flow.source.queue, 6, 8)
    run(flow)
    assert sorted(row["n"] for row in documents(queues, flow.output_queues[0])) == [6, 106, 107]
    [letter] = queues.rows(flow.errors_to)
    assert json.loads(letter["headers"])["split"] is True
    retry(flow.name, spark_server.url)
    assert queues.size(flow.source.queue) == 2
    assert "1 cannot be sent alone" in capsys.readouterr().out
