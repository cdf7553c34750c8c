"""Options: what is read, what is refused, and what the user is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay.spark.option_table import BATCH_READ, BATCH_WRITE, EITHER_READ, OPTIONS, STREAM_READ, STREAM_WRITE
from forebay.spark.options import Connection, OptionsRefused, environment_defaults, read_options, write_options
from forebay.spark.positions import EARLIEST, LATEST, Position
from forebay.spark.reference import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "spark-options.md"


def test_only_the_queue_must_be_given() -> None:
    batch, stream = read_options({"queue": "q"}, BATCH_READ), read_options({"queue": "q"}, STREAM_READ)
    assert (batch.starting, batch.ending, stream.starting) == (EARLIEST, LATEST, LATEST)
    assert batch.connection == Connection(("http://127.0.0.1:6632",), None, 60.0)
    assert (batch.is_loss_fatal, batch.payload_as, batch.group) == (True, "binary", None)
    assert write_options({"queue": "q"}, BATCH_WRITE).stage_bytes_max == 16 * 1024 * 1024


def test_case_of_a_name_does_not_matter() -> None:
    for name in ("maxOffsetsPerTrigger", "maxoffsetspertrigger", "MAXOFFSETSPERTRIGGER"):
        assert read_options({"QUEUE": "q", name: "5"}, STREAM_READ).rows_max == 5


@pytest.mark.parametrize("use", [BATCH_READ, STREAM_READ, EITHER_READ])
def test_misspelt_option_of_a_read_is_refused_with_what_was_meant_and_what_exists(use: str) -> None:
    with pytest.raises(OptionsRefused) as refused:
        read_options({"queue": "q", "failOnDataLos": "false"}, use)
    assert "'failondatalos' is no option (did you mean failOnDataLoss?)" in str(refused.value)
    assert "The options are: url, apiKey, queue," in str(refused.value)


def test_misspelt_option_of_a_write_is_refused() -> None:
    with pytest.raises(OptionsRefused, match=r"did you mean queue\?"):
        write_options({"queues": "q"}, STREAM_WRITE)


def test_all_faults_are_told_at_once() -> None:
    given = {
        "minPartitions": "0",
        "failOnDataLoss": "maybe",
        "startingOffsets": "first",
        "url": "ftp://x",
        "nonsense": "",
    }
    with pytest.raises(OptionsRefused) as refused:
        read_options(given, STREAM_READ)
    assert len(refused.value.faults) == 6
    assert "queue is missing" in refused.value.faults


@pytest.mark.parametrize(
    ("use", "name", "told"),
    [
        (BATCH_READ, "group", "group is an option of spark.readStream only"),
        (BATCH_READ, "maxOffsetsPerTrigger", "maxOffsetsPerTrigger is an option of spark.readStream only"),
        (STREAM_READ, "endingOffsets", "endingOffsets is an option of spark.read only"),
        (STREAM_READ, "producer", "producer is an option of write only"),
    ],
)
def test_option_of_another_use_is_refused_with_its_use(use: str, name: str, told: str) -> None:
    with pytest.raises(OptionsRefused, match=re.escape(told)):
        read_options({"queue": "q", name: "1"}, use)


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "earliest", "startingTimestamp": "0"},
        {"endingOffsets": "latest", "endingTimestamp": "0"},
        {"payloadAs": "json"},
        {"schema": "a INT"},
        {"payloadAs": "string", "schema": "a INT"},
        {"payloadAs": "text"},
        {"queue": " "},
        {"url": ","},
        {"retryTimeout": "-1"},
        {"retryTimeout": "soon"},
        {"partition": ","},
    ],
)
def test_contradictions_and_nonsense_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionsRefused):
        read_options({"queue": "q", **given}, BATCH_READ)


@pytest.mark.parametrize("given", [{"producer": "p"}, {"epoch": "1"}, {"payloadAs": "binary"}])
def test_contradictions_of_a_write_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionsRefused):
        write_options({"queue": "q", **given}, BATCH_WRITE)


def test_checkpoint_location_is_sparks_own_and_passes() -> None:
    assert write_options({"queue": "q", "checkpointLocation": "/c"}, STREAM_WRITE).queue == "q"


def test_what_is_given_wins_over_defaults() -> None:
    defaults = {"url": "http://a:1", "apiKey": "k"}
    assert read_options({"queue": "q"}, BATCH_READ, defaults).connection == Connection(("http://a:1",), "k")
    given = {"queue": "q", "URL": "http://b:2/, https://c:3"}
    assert read_options(given, BATCH_READ, defaults).connection == Connection(("http://b:2", "https://c:3"), "k")


def test_environment_gives_url_and_key() -> None:
    assert environment_defaults({"FOREBAY_URL": "http://a:1", "FOREBAY_API_KEY": ""}) == {"url": "http://a:1"}


def test_values_are_read() -> None:
    options = read_options(
        {
            "queue": "q",
            "startingOffsets": '{"seq": 7}',
            "partition": "a, b",
            "retryTimeout": "2.5s",
            "failOnDataLoss": "FALSE",
            "payloadAs": "String",
        },
        BATCH_READ,
    )
    assert (options.starting, options.partitions) == (Position(seq=7), ("a", "b"))
    assert (options.connection.retry_seconds, options.is_loss_fatal) == (2.5, False)
    assert options.payload_as == "string"


def test_reference_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page()
    assert all(f"`{option.name}`" in page() for option in OPTIONS)
