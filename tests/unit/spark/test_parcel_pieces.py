"""How the messages of a lease are divided between tasks, and what a job's counts say of its parcels."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.flows import Flow, QueueSink, Source, SqlAction
from forebay.flows.chains import chains_of
from forebay.flows.definition import ExportSink
from forebay.spark.options import Connection
from forebay.spark.parcels.lease import Parcel, Range
from forebay.spark.parcels.messages import Piece, divided, merged, pieces_of, tasks_for
from forebay.spark.parcels.outcomes import JobDone, outcomes_of
from forebay.spark.parcels.staging import NAMES, Staged, Target, _Stager

PIECES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 500), st.integers(0, 300)), max_size=12).map(
    lambda found: [Piece(f"d{n}", queue, first, first + more) for n, (queue, first, more) in enumerate(found)]
)


def seqs(pieces: list[Piece]) -> list[tuple[str, str, int]]:
    return [(one.did, one.queue, seq) for one in pieces for seq in range(one.first_seq, one.last_seq + 1)]


@given(PIECES, st.integers(1, 9))
def test_every_message_is_in_one_task_and_order_stays(pieces: list[Piece], tasks: int) -> None:
    found = divided(pieces, tasks)
    assert seqs([piece for task in found for piece in task]) == seqs(pieces)
    assert len(found) <= tasks
    assert all(found)


@given(PIECES)
def test_pieces_that_follow_each_other_are_one_request(pieces: list[Piece]) -> None:
    runs = list(merged(pieces))
    assert [piece for run in runs for piece in run] == pieces
    for run in runs:
        assert {piece.queue for piece in run} == {run[0].queue}
        assert all(later.first_seq == earlier.last_seq + 1 for earlier, later in pairwise(run))


def test_little_is_not_divided_and_much_is() -> None:
    assert tasks_for(100, 8, is_local=True) == 1
    assert tasks_for(20_000, 8, is_local=True) == 4
    assert tasks_for(1_000_000, 8, is_local=False) == 10
    assert tasks_for(100, 8, is_local=True, at_least=3) == 3


def parcel(did: str, messages: int = 10) -> Parcel:
    return Parcel(did, 0, "shop", 1, 1, (Range("in", 1, messages),), messages)


def job(
    staged: Staged, *parcels: Parcel, sinks: tuple[QueueSink | ExportSink, ...] = (QueueSink(queue="out"),)
) -> JobDone:
    action = SqlAction(name="a", sql="TABLE input")
    flow = Flow(name="shop", source=Source(queue="in"), actions=(action,), sinks=sinks)
    targets = [*(Target(sink.queue, is_text=True) for sink in sinks), Target(flow.errors_to, is_text=False)]
    return JobDone(chains_of(flow)[0], parcels, targets, staged)


def test_rows_that_say_whose_they_are_are_counted_by_parcel() -> None:
    staged = Staged(rows=Counter({(0, "a"): 7, (1, "a"): 3}))
    first, second = outcomes_of(job(staged, parcel("a"), parcel("b")))
    assert (first.state, first.rows_in, first.rows_out, first.bad) == ("COMPLETE", 10, 7, 3)
    assert (second.state, second.rows_out) == ("FILTERED", 0)


def test_rows_that_do_not_say_it_are_nobodys_unless_there_is_one_parcel() -> None:
    staged = Staged(rows=Counter({(0, ""): 7}))
    assert [one.rows_out for one in outcomes_of(job(staged, parcel("a"), parcel("b")))] == [None, None]
    assert [one.rows_out for one in outcomes_of(job(staged, parcel("a")))] == [7]


def test_a_parcel_waits_for_the_rows_that_go_to_a_destination() -> None:
    sinks = (ExportSink(export="warehouse"),)
    known = Staged(rows=Counter({(0, "a"): 7}))
    first, second = outcomes_of(job(known, parcel("a"), parcel("b"), sinks=sinks))
    [waiting] = first.awaits
    assert (waiting.queue, waiting.group, waiting.partition, waiting.rows) == (".export.warehouse", "export", "shop", 7)
    assert second.awaits == ()
    unknown = Staged(rows=Counter({(0, ""): 7}))
    assert [one.awaits[0].rows for one in outcomes_of(job(unknown, parcel("a"), parcel("b"), sinks=sinks))] == [7, 7]


def test_counts_and_notes_are_told_and_stage_nothing() -> None:
    stager = _Stager([], "lease", Connection(()))
    rows = [(-1, "a", "too plain", 3), (-2, "a", '{"seen": "yes"}', 1)]
    columns = {name: [None, None] for name in NAMES} | {
        "target": [row[0] for row in rows],
        "did": [row[1] for row in rows],
        "note": [row[2] for row in rows],
        "count": [row[3] for row in rows],
    }
    stager.add(pa.RecordBatch.from_pydict(columns))
    assert stager.outcome_rows().to_pylist() == [
        {"kind": "count", "target": -1, "did": "a", "text": "too plain", "count": 3},
        {"kind": "count", "target": -2, "did": "a", "text": '{"seen": "yes"}', "count": 1},
    ]


def test_an_empty_range_is_no_piece() -> None:
    assert pieces_of([Parcel("a", 0, "shop", 1, 1, (Range("in", 5, 4),), 0)]) == []
