"""A chain of record actions over batches of Arrow: results in order, side rows beside them. No Spark is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from forebay.flows import Error, Filter, Record, RecordAction, RecordContext, Result, Results
from forebay.flows.action import ActionParams
from forebay.flows.record_action import BadRecord, Outcome
from forebay.spark.message_marks import HIDDEN, InputColumns
from forebay.spark.record_attempts import RecordStep
from forebay.spark.record_chain import ChainStep, RecordChain
from forebay.spark.record_sides import SIDE

OWN = [("did", pa.string()), ("seq", pa.int64()), ("partition", pa.string())]
INPUT = pa.schema([*OWN, ("payload", pa.binary())])
N = pa.field("n", pa.int64())
Act = Callable[[Record, RecordContext], Any]


class Doing(RecordAction):
    def __init__(self, act: Act) -> None:
        super().__init__(ActionParams())
        self.act = act
        self.events: list[str] = []

    def open(self) -> None:
        self.events.append("open")

    def close(self) -> None:
        self.events.append("close")

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        return self.act(record, context)  # type: ignore[no-any-return]


def chain(
    *acts: Act | RecordAction, is_stream: bool = False, fields: Iterable[pa.Field] = (N,), **of: Any
) -> RecordChain:
    output = pa.schema([*OWN, *(pa.field(field.name, field.type) for field in fields)])
    steps = [
        ChainStep(
            RecordStep(act if isinstance(act, RecordAction) else Doing(act), f"step{index}", **of),
            pa.schema(list(fields)),
            output,
        )
        for index, act in enumerate(acts)
    ]
    return RecordChain(
        steps, INPUT.names, output.append(pa.field("_forebay_side", SIDE)), "clicks", is_stream, {"d1": 4}
    )


def messages(*payloads: str, dids: list[str] | None = None) -> pa.RecordBatch:
    count = len(payloads)
    rows = {
        "did": dids or ["d1"] * count,
        "seq": list(range(1, count + 1)),
        "partition": [f"p{index % 2}" for index in range(count)],
        "payload": [text.encode() for text in payloads],
    }
    return pa.RecordBatch.from_pydict(rows, schema=INPUT)


def run(subject: RecordChain, *batches: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Good rows, and side rows with the fields of the side column beside the message's own."""
    rows = [row for batch in subject(iter(batches)) for row in batch.to_pylist()]
    good = [row for row in rows if row["_forebay_side"] is None]
    side = [{**row, **row.pop("_forebay_side")} for row in rows if row["_forebay_side"] is not None]
    return [{name: value for name, value in row.items() if name != "_forebay_side"} for row in good], side


def number(record: Record, _: RecordContext) -> Outcome:
    text = record["payload"].decode()
    if text.startswith("drop"):
        return Filter(text)
    if text == "split":
        return Results([{"n": 1}, Result({"n": 2}, {"of": "split"})])
    if text == "bad":
        return Error("no number")
    return {"n": int(text)}


def test_results_have_the_columns_of_the_schema_and_those_of_their_message() -> None:
    good, side = run(chain(number), messages("7", "split"))
    assert good == [
        {"did": "d1", "seq": 1, "partition": "p0", "n": 7},
        {"did": "d1", "seq": 2, "partition": "p1", "n": 1},
        {"did": "d1", "seq": 2, "partition": "p1", "n": 2},
    ]
    assert [(row["kind"], json.loads(row["text"]), row["count"]) for row in side] == [("note", {"of": "split"}, 1)]


def test_bad_record_has_its_cause_its_bytes_and_its_message_and_the_rest_goes_on() -> None:
    good, [bad, failed] = run(chain(number), messages("1", "bad", "x", "4"))
    assert [row["n"] for row in good] == [1, 4]
    assert (bad["kind"], bad["text"], bad["payload"], bad["count"]) == ("bad", "no number", b"bad", 1)
    assert (bad["did"], bad["seq"], bad["partition"], bad["n"], bad["action"]) == ("d1", 2, "p1", None, "step0")
    assert bad["traceback"] is None
    assert failed["text"].startswith("ValueError: invalid literal")
    assert failed["traceback"].startswith("Traceback")


def test_row_that_fails_is_split_only_where_its_record_became_others_too() -> None:
    def picky(record: Record, _: RecordContext) -> Outcome:
        return Error("odd") if record["n"] % 2 else {"n": record["n"]}

    good, side = run(chain(number, picky), messages("split", "8", "9", "bad"))
    assert [row["n"] for row in good] == [2, 8]
    found = {(row["seq"], row["text"]): row["split"] for row in side if row["kind"] == "bad"}
    assert found == {(1, "odd"): True, (3, "odd"): None, (4, "no number"): None}


def test_hidden_columns_are_what_a_bad_record_came_as_and_no_action_sees_them() -> None:
    seen: list[set[str]] = []

    def look(record: Record, _: RecordContext) -> Outcome:
        seen.append(set(record))
        return Error("no")

    came = messages("made of it")
    hidden = [pa.array([b'{"as": "it came"}'], pa.binary()), pa.array([77], pa.int64())]
    batch = pa.RecordBatch.from_arrays([*came.columns, *hidden], [*came.schema.names, *HIDDEN])
    subject = replace(chain(look), columns=batch.schema.names, inputs=InputColumns(*HIDDEN))
    _, [bad] = run(subject, batch)
    assert (bad["payload"], bad["input_seq"], bad["seq"]) == (b'{"as": "it came"}', 77, 1)
    assert seen == [set(INPUT.names)]


def test_seq_of_a_record_is_given_only_from_the_column_that_is_known_to_have_it() -> None:
    _, [bad] = run(chain(number), messages("bad"))
    assert (bad["input_seq"], bad["payload"]) == (None, b"bad")
    _, [bad] = run(replace(chain(number), inputs=InputColumns("payload", "seq")), messages("bad"))
    assert (bad["input_seq"], bad["payload"]) == (1, b"bad")


def test_filtered_records_are_added_up_by_parcel_and_reason() -> None:
    texts = ("drop a", "drop b", "drop a", "drop a")
    _, side = run(chain(number), messages(*texts, dids=["d1", "d1", "d1", "d2"]))
    found = {(row["did"], row["text"]): row["count"] for row in side}
    assert found == {("d1", "drop a"): 2, ("d1", "drop b"): 1, ("d2", "drop a"): 1}
    assert {(row["kind"], row["seq"], row["partition"], row["payload"]) for row in side} == {
        ("filtered", None, None, None)
    }


def test_skipped_record_is_named_by_its_seq() -> None:
    good, [skipped] = run(chain(number, on_error="skip"), messages("1", "x"))
    assert [row["n"] for row in good] == [1]
    assert (skipped["kind"], skipped["seq"], skipped["count"], skipped["payload"]) == ("skipped", 2, 1, None)


def test_value_that_does_not_fit_makes_its_whole_record_bad_and_no_other() -> None:
    def act(record: Record, _: RecordContext) -> Outcome:
        wrong = record["seq"] == 2
        return Results([Result({"n": 1}, {"is": "noted"}), {"n": "one" if wrong else 2}])

    good, side = run(chain(act), messages("a", "b", "c"))
    assert [(row["seq"], row["n"]) for row in good] == [(1, 1), (1, 2), (3, 1), (3, 2)]
    [bad] = [row for row in side if row["kind"] == "bad"]
    assert (bad["seq"], bad["payload"]) == (2, b"b")
    assert bad["text"] == "'one' does not fit column n (int64): got str"
    assert [row["count"] for row in side if row["kind"] == "note"] == [2], "not that of the bad record"


def test_column_that_the_schema_does_not_name_is_a_fault_and_one_that_is_left_out_is_null() -> None:
    def act(record: Record, _: RecordContext) -> Outcome:
        return {} if record["seq"] == 1 else {"n": 1, "m": 2}

    [row], [bad] = run(chain(act), messages("a", "b"))
    assert (row["seq"], row["n"]) == (1, None)
    assert bad["text"] == "a value for m, which the schema of 'step0' does not name"


def test_null_for_not_null_is_a_fault() -> None:
    _, [bad] = run(chain(lambda *_: {}, fields=[pa.field("n", pa.int64(), nullable=False)]), messages("a"))
    assert bad["text"] == "None does not fit column n (int64): null, and n is NOT NULL"


def test_values_win_over_the_columns_of_the_message() -> None:
    def act(record: Record, _: RecordContext) -> Outcome:
        return {"n": 1, "partition": "mine"} if record["seq"] == 2 else {"n": 1}

    good, _ = run(chain(act), messages("a", "b", "c"))
    assert [row["partition"] for row in good] == ["p0", "mine", "p0"]


def test_actions_in_one_chain_see_the_results_before_them_and_bad_records_keep_their_first_bytes() -> None:
    def twice(record: Record, context: RecordContext) -> Outcome:
        assert record.columns == ("did", "seq", "partition", "n")
        return Error(f"{context.action}: {record['n']}") if record["n"] == 2 else {"n": record["n"] * 2}

    good, side = run(chain(number, twice), messages("5", "split", "drop", "bad"))
    assert [(row["seq"], row["n"]) for row in good] == [(1, 10), (2, 2)]
    bad = {row["action"]: (row["text"], row["payload"], row["seq"]) for row in side if row["kind"] == "bad"}
    assert bad == {"step0": ("no number", b"bad", 4), "step1": ("step1: 2", b"split", 2)}


def test_record_without_a_payload_is_kept_as_json() -> None:
    batch = pa.RecordBatch.from_pydict({"seq": [1], "user": ["ann"], "raw": [b"\x00"]})
    output = pa.schema([("seq", pa.int64()), N])
    step = ChainStep(RecordStep(Doing(lambda *_: Error("no")), "act"), pa.schema([N]), output)
    subject = RecordChain([step], batch.schema.names, output.append(pa.field("_forebay_side", SIDE)), "clicks", False)
    _, [bad] = run(subject, batch)
    assert bad["payload"] == b'{"user":"ann","raw":"AA=="}'


def test_context_names_flow_action_parcel_and_its_attempt() -> None:
    seen: list[RecordContext] = []

    def act(_: Record, context: RecordContext) -> Outcome:
        seen.append(context)
        return {"n": 1}

    run(chain(act), messages("a", "b", dids=["d1", "d2"]))
    assert seen == [RecordContext("step0", "clicks", "d1", 4), RecordContext("step0", "clicks", "d2", None)]


def test_action_is_opened_once_per_partition_and_closed_also_when_it_fails() -> None:
    action = Doing(number)
    run(chain(action), messages("1"), messages("2"))
    assert action.events == ["open", "close"]

    def away(*_: object) -> Outcome:
        raise ConnectionError("away")

    failing = Doing(away)
    with pytest.raises(ConnectionError):
        run(chain(failing), messages("1"))
    assert failing.events == ["open", "close"]


def test_batch_is_taken_in_pieces_and_nothing_is_lost() -> None:
    subject = replace(chain(number), piece_rows_max=3)
    batches = list(subject(iter([messages(*map(str, range(8)))])))
    assert [batch.num_rows for batch in batches] == [3, 3, 2]
    good, [bad] = run(replace(subject, piece_bytes_max=1), messages("0", "bad", "2"))
    assert [row["n"] for row in good] == [0, 2]
    assert (bad["seq"], bad["payload"]) == (2, b"bad")


def test_in_a_stream_what_is_bad_raises_and_nothing_else_leaves_beside_the_results() -> None:
    good, side = run(chain(number, is_stream=True), messages("1", "drop", "split"))
    assert ([row["n"] for row in good], side) == ([1, 1, 2], [])
    with pytest.raises(BadRecord, match="no number"):
        run(chain(number, is_stream=True), messages("bad"))
    with pytest.raises(BadRecord, match="'one' does not fit column n"):
        run(chain(lambda *_: {"n": "one"}, is_stream=True), messages("a"))
