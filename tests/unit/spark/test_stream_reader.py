"""What plans the batches of a stream: a loss that it may pass is told, and it ends quietly when Spark has gone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from forebay.spark.columns import message_schema
from forebay.spark.options import Connection, ReadOptions
from forebay.spark.positions import EARLIEST, Bounds, Offset
from forebay.spark.queues import Queue
from forebay.spark.stream_reader import QueueStreamReader

STOPPED_BY_SPARK = """
from forebay.spark.stream_reader import QueueStreamReader
reader = object.__new__(QueueStreamReader)
try:
    {raised}
finally:
    reader.stop()
"""


def stopped_while(raised: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", STOPPED_BY_SPARK.format(raised=raised)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_end_of_sparks_connection_ends_the_process_without_a_traceback() -> None:
    done = stopped_while("raise EOFError")
    assert (done.returncode, done.stderr) == (0, "")


def test_other_failures_reach_spark_as_they_are() -> None:
    done = stopped_while("raise ValueError('of the reader')")
    assert done.returncode == 1
    assert "ValueError: of the reader" in done.stderr


class ScriptedQueue(QueueStreamReader):
    """Reads a queue of these bounds."""

    def __init__(self, bounds: Bounds, *, is_loss_fatal: bool = False) -> None:
        options = ReadOptions(Connection(("http://x",)), "orders", EARLIEST, is_loss_fatal=is_loss_fatal)
        super().__init__(options, message_schema(options))
        self._now = bounds

    def _queue(self) -> Queue:
        return cast("Queue", self)

    def bounds(self, *_: object, **__: object) -> Bounds:
        return self._now

    def hold(self, *_: object) -> None: ...


def batch_after(reader: QueueStreamReader, seen: Offset) -> dict[str, Any]:
    return reader.latestOffset(seen.as_json(), ReadAllAvailable())


def test_stream_on_a_queue_that_was_made_again_says_that_it_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    reader = ScriptedQueue(Bounds(1, 1501, identity="new"))
    assert batch_after(reader, Offset(501, "old", "r"))["began"] == 1
    [line] = caplog.records
    assert (line.levelname, line.__dict__["action"]) == ("WARNING", "stream_from_first")
    assert "was to be read from seq 501 (identity old)" in line.message
    assert "the seqs from 1 to 1500 (identity new)" in line.message


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(31, 41, identity="a", removed_seq=30), "messages 10-30 of queue"),
        (Bounds(1, 41, identity="a", removed_seq=20), "between seq 10 and 20 are gone"),
    ],
    ids=["at the front", "behind the front"],
)
def test_stream_that_may_pass_what_is_gone_says_once_what_it_passes(
    bounds: Bounds, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = ScriptedQueue(bounds)
    for _ in range(3):
        assert batch_after(reader, Offset(10, "a", "r"))["seq"] == 41
    [line] = caplog.records
    assert (line.levelname, line.__dict__["action"]) == ("WARNING", "stream_messages_gone")
    assert words in line.message
    assert line.message.endswith("the query goes on without them")
