"""The demo's verdict: whatever is missing, twice or wrong anywhere is a complaint, and a complaint is exit code 1."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from forebay.cli.demo.clicks import Clicks, users
from forebay.cli.demo.findings import table_of
from forebay.cli.demo.result import Audit, Comparison, Delivery, DemoResult, Pushing, compare, latency_of
from forebay.cli.demo_command import show_result
from forebay.cli.output import Format

EXACT = Comparison(expected=3, found=3, lost=0, duplicated=0, wrong=0)
RIGHT = DemoResult(
    requested=1000,
    pushing=Pushing(1000, 750, 0, 1.0, 1.0),
    pushed=EXACT,
    joined=EXACT,
    per_minute=EXACT,
    parquet=EXACT,
    scored=EXACT,
    delivery=Delivery(EXACT, EXACT, requests=9, sent_again=500, away_seconds=10.0),
    parcels={"COMPLETE": 7},
    audit=Audit(is_balanced=True, queues=9, messages=12, differences=[]),
    backlog_clicks_per_second=1.0,
    latency=None,
    spark_start_seconds=1.0,
    worker_seconds=1.0,
    seconds=1.0,
    rows=[],
)


@pytest.mark.parametrize(
    ("found", "lost", "duplicated", "wrong"),
    [
        ([("a", 1), ("b", 2)], 0, 0, 0),
        ([("b", 2), ("a", 1)], 0, 0, 0),
        ([("a", 1)], 1, 0, 0),
        ([], 2, 0, 0),
        ([("a", 1), ("a", 1), ("b", 2)], 0, 1, 0),
        ([("a", 1), ("b", 3)], 0, 0, 1),
        ([("a", 1), ("b", 2), ("c", 3)], 0, 0, 1),
        ([("a", 9), ("a", 1), ("c", 3)], 1, 1, 2),
    ],
)
def test_comparison_tells_lost_duplicated_and_wrong_apart(
    found: list[tuple[str, int]], lost: int, duplicated: int, wrong: int
) -> None:
    assert compare({"a": 1, "b": 2}, found) == Comparison(2, len(found), lost, duplicated, wrong)


def test_nothing_is_complained_about_when_all_is_right() -> None:
    assert RIGHT.complaints() == []


@pytest.mark.parametrize("place", ["pushed", "joined", "per_minute", "parquet", "scored"])
@pytest.mark.parametrize("fault", ["lost", "duplicated", "wrong"])
def test_one_fault_in_any_place_is_a_complaint(place: str, fault: str) -> None:
    faulty: dict[str, Any] = {place: replace(EXACT, **{fault: 1})}
    result = replace(RIGHT, **faulty)
    (complaint,) = result.complaints()
    assert f"1 {fault}" in complaint
    assert getattr(result, fault) == 1


@pytest.mark.parametrize("fault", ["lost", "duplicated", "wrong"])
@pytest.mark.parametrize("place", ["clicks", "samples"])
def test_one_fault_at_the_destination_is_a_complaint(place: str, fault: str) -> None:
    faulty: dict[str, Any] = {place: replace(EXACT, **{fault: 1})}
    result = replace(RIGHT, delivery=replace(RIGHT.delivery, **faulty))
    (complaint,) = result.complaints()
    assert f"1 {fault}" in complaint


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parcels": {"COMPLETE": 6, "ERROR": 1}}, "1 ERROR"),
        ({"parcels": {}}, "there are none"),
        ({"audit": Audit(False, 9, 12, ["clicks: 3 messages are stored"])}, "clicks: 3 messages are stored"),
        ({"delivery": replace(RIGHT.delivery, away_seconds=0.0)}, "never away"),
    ],
)
def test_what_did_not_end_as_it_has_to_is_a_complaint(change: dict[str, Any], told: str) -> None:
    (complaint,) = replace(RIGHT, **change).complaints()
    assert told in complaint


@pytest.mark.parametrize("output_format", list(Format))
def test_exit_code_is_1_when_a_result_is_missing(output_format: Format, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(RIGHT, output_format)
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.Exit) as ended:
        show_result(replace(RIGHT, parquet=replace(EXACT, found=2, lost=1)), output_format)
    assert ended.value.exit_code == 1
    shown, told = capsys.readouterr()
    assert told == "forebay: error: Parquet: 3 expected, 2 found; 1 lost, 0 duplicated, 0 wrong\n"
    if output_format is Format.JSON:
        assert (json.loads(shown)["lost"], json.loads(shown)["parquet"]["found"]) == (1, 2)
    else:
        (line,) = [line for line in shown.splitlines() if line.startswith("delivered: the same, in Parquet")]
        assert line.endswith(" 2 of 3 rows")


@pytest.mark.parametrize("pushing", [Pushing(999, 750, 0, 1.0, 1.0), Pushing(1000, 0, 0, 1.0, 0.0)])
def test_a_click_not_accepted_and_a_kill_that_did_not_happen_are_complaints(pushing: Pushing) -> None:
    assert len(replace(RIGHT, pushing=pushing).complaints()) == 1


def test_every_click_is_in_one_minute_and_the_closing_one_in_none() -> None:
    clicks = Clicks(1234)
    assert sum(counted.clicks for counted in clicks.per_minute().values()) == len(clicks.joined()) == 1234
    assert clicks.closing()["user"] not in users()
    assert clicks.closing()["at"] > max(click["at"] for n, click in clicks.pushed().items() if n != clicks.count)


def test_latency_is_told_by_rank() -> None:
    latency = latency_of(n / 100 for n in reversed(range(100)))
    assert latency is not None
    assert (latency.median_seconds, latency.p99_seconds, latency.max_seconds) == (0.5, 0.99, 0.99)
    assert latency_of([]) is None


def test_files_of_a_batch_that_is_still_written_do_not_count(tmp_path: Path) -> None:
    assert table_of(tmp_path / "nothing").num_rows == 0
    writing = tmp_path / "_forebay" / "query" / "3"
    writing.mkdir(parents=True)
    for folder, name in ((tmp_path, "a b"), (tmp_path, "c"), (writing, "d")):
        rows = {"minute": pa.array([0], pa.timestamp("ns")), "region": ["eu"], "clicks": [1], "ms": [2]}
        pq.write_table(pa.table(rows), folder / f"{name}.parquet")
    assert [row["minute"].isoformat() for row in table_of(tmp_path).to_pylist()] == ["1970-01-01T00:00:00+00:00"] * 2
