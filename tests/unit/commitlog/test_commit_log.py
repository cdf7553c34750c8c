"""What a commit log does when nothing goes wrong, on a real directory."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures.logs import TINY, batch, content, numbered, rows
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.columns import SCHEMA
from forebay.errors import BatchRefused, LogClosed, RangeGone
from forebay.model.message import MessageBatch
from forebay.testing.fake_clock import DAY_US, START_US, FakeClock


def test_messages_are_numbered_from_one_in_the_order_of_their_appends(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "deep" / "log") as log:
        assert (log.first_seq, log.next_seq) == (1, 1)
        assert log.append(batch(b"a", b"b")) == (1, 2)
        assert log.append(batch(b"c")) == (3, 3)
        assert content(log) == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_a_read_yields_arrow_batches_of_the_schema(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append(
            MessageBatch(
                [b"{}", b"\xff\x00"],
                [START_US, START_US + 1],
                [b"eu", b"us"],
                [b"t1", b"t2"],
                [b"", b"trace"],
                [b"", b'{"k":1}'],
                [0, 1],
            )
        )
        (found,) = log.read(1)
    assert found.schema == SCHEMA
    assert isinstance(found, pa.RecordBatch)
    row = found.to_pylist()[1]
    assert row.pop("created_at").timestamp() * 1_000_000 == START_US + 1
    assert row == {
        "seq": 2,
        "flags": 1,
        "partition": "us",
        "transaction_id": "t2",
        "trace_id": "trace",
        "headers": '{"k":1}',
        "payload": b"\xff\x00",
    }


def test_reads_take_ranges_and_limits(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY, clock=FakeClock()) as log:
        for _ in range(30):
            log.append(numbered(log.next_seq, 3))
        assert len(log.state.entries) > 3

        def seqs(*args: int, limit: int | None = None) -> list[int]:
            return [seq for seq, _ in rows(log.read(*args, limit=limit))]

        assert seqs(1) == list(range(1, 91))
        assert seqs(5, 5) == [5]
        assert seqs(40, 70) == list(range(40, 71))
        assert seqs(88, 1000) == [88, 89, 90]
        assert seqs(17, limit=20) == list(range(17, 37))
        assert seqs(17, limit=0) == []
        assert seqs(17, 16) == []
        assert seqs(91) == []
        assert seqs(500) == []


def test_a_read_sees_what_was_durable_when_it_began(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY) as log:
        log.append(numbered(1, 3))
        reading = rows(log.read(1))
        assert next(reading)[0] == 1
        log.append(numbered(4, 3))
        log.roll()
        log.append(numbered(7, 3))
        assert [seq for seq, _ in reading] == [2, 3]


def test_a_segment_rolls_by_size_and_by_day(tmp_path: Path) -> None:
    clock = FakeClock()
    with CommitLog.open(tmp_path, LogOptions(segment_bytes=1000), clock=clock) as log:
        for _ in range(10):
            log.append(numbered(log.next_seq, 2))
        assert all(entry.size <= 1000 for entry in log.state.entries)
        segments = len(log.state.entries)
        assert segments >= 1
        clock.advance(86_400)
        log.append(numbered(log.next_seq, 1))
        assert len(log.state.entries) == segments + 1
        assert log.state.path.startswith("2026/01/02/")
        clock.step(-86_400 * 3)
        log.append(numbered(log.next_seq, 1))
        assert log.state.path.startswith("2026/01/02/"), "a clock set back does not reopen an old day"
        assert [seq for seq, _ in content(log)] == list(range(1, 23))


def test_days_do_not_roll_when_told_not_to(tmp_path: Path) -> None:
    clock = FakeClock()
    with CommitLog.open(tmp_path, LogOptions(roll_daily=False), clock=clock) as log:
        log.append(numbered(1, 1))
        clock.advance(86_400 * 5)
        log.append(numbered(2, 1))
        assert len(log.state.entries) == 0


def test_an_empty_segment_of_yesterday_gives_way_to_one_of_today(tmp_path: Path) -> None:
    clock = FakeClock()
    with CommitLog.open(tmp_path, clock=clock) as log:
        clock.advance(86_400)
        log.append(numbered(1, 1))
        assert log.state.path == "2026/01/02/0000000000000001.data"
        assert not list((tmp_path / "2026/01/01").iterdir())


def test_truncation_removes_whole_segments_and_gives_the_disk_back(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY, clock=FakeClock()) as log:
        for _ in range(40):
            log.append(numbered(log.next_seq, 2))
        files = sorted(tmp_path.rglob("*.data"))
        kept = log.truncate_before(41)
        assert 1 < kept <= 41
        assert log.first_seq == kept
        assert content(log) == [(seq, b"%d" % seq) for seq in range(kept, 81)]
        left = sorted(tmp_path.rglob("*.data"))
        assert len(left) < len(files)
        assert log.counters.segments_removed == len(files) - len(left)
        with pytest.raises(RangeGone, match=f"messages 1-{kept - 1} are gone.*oldest message kept is {kept}"):
            list(log.read(1))
    again = CommitLog.open(tmp_path, TINY)
    assert again.first_seq == kept
    again.close()


def test_truncating_everything_leaves_an_empty_log_that_counts_on(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append(numbered(1, 5))
        assert log.truncate_before(10**12) == 6
        assert content(log) == []
        assert [path.stat().st_size for path in tmp_path.rglob("*.data")] == [0]
        assert log.append(numbered(6, 1)) == (6, 6)


def test_a_reader_finishes_the_segment_that_retention_removes_under_it(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY, clock=FakeClock()) as log:
        for _ in range(20):
            log.append(numbered(log.next_seq, 2))
        reading = rows(log.read(1))
        next(reading)
        log.truncate_before(30)
        seen = [1]
        with pytest.raises(RangeGone):
            seen.extend(seq for seq, _ in reading)
        assert len(seen) > 1


def test_time_finds_messages_across_segments_in_any_order_of_creation(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY, clock=FakeClock()) as log:
        created = [START_US + (index * 7919) % 1000 for index in range(60)]
        for start in range(0, 60, 3):
            times = created[start : start + 3]
            log.append(MessageBatch([b"%d" % t for t in times], times))
        for low, high in ((0, 1000), (100, 400), (999, 1000), (5000, 6000), (400, 100)):
            found = [int(payload) for _, payload in rows(log.read_created_between(START_US + low, START_US + high))]
            assert found == [t for t in created if START_US + low <= t < START_US + high]
        assert not list(log.read_created_between(START_US - DAY_US, START_US))


def test_tags_stay_with_their_messages(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append(numbered(1, 2))
        log.append(numbered(3, 1), tag=b"transaction-0001")
        tags = [(record.header.first_seq, record.tag_and_batch()[0]) for record in log.read_records(1)]
        assert tags == [(1, bytes(16)), (3, b"transaction-0001")]
        with pytest.raises(BatchRefused, match="a tag has 16 bytes, not 5"):
            log.append(numbered(4, 1), tag=b"short")


def test_a_record_is_found_again_by_its_place(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, TINY, clock=FakeClock()) as log:
        places = [log.append_record(numbered(log.next_seq, count)) for count in (3, 1, 8, 2, 40)]
        log.append(numbered(log.next_seq, 2))
        for place in places:
            record = log.read_record(place.first_seq, place.position)
            assert (record.first_seq, record.count) == (place.first_seq, place.last_seq - place.first_seq + 1)
        log.truncate_before(log.next_seq)
        with pytest.raises(RangeGone):
            log.read_record(places[0].first_seq, places[0].position)


def test_a_batch_over_the_limit_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        with pytest.raises(
            BatchRefused, match=r"1 messages and 6815.* bytes is outside 1-1048576 messages of 67108864 bytes"
        ):
            log.append(batch(bytes(65 << 20)))
        with pytest.raises(BatchRefused, match="a batch of 0 messages"):
            log.append(MessageBatch([], []))
        assert log.append(batch(bytes(10 << 20), b"")) == (1, 2)
        assert [len(payload) for _, payload in content(log)] == [10 << 20, 0]


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path)
    log.close()
    log.close()
    for use in (lambda: log.append(batch(b"a")), lambda: log.read(1), lambda: log.truncate_before(1), log.roll):
        with pytest.raises(LogClosed, match="the log is closed"):
            use()


def test_closing_and_opening_without_a_change_writes_nothing(tmp_path: Path) -> None:
    CommitLog.open(tmp_path).close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"}
    for _ in range(3):
        CommitLog.open(tmp_path).close()
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file() and p.name != "lock"}


def test_threads_append_together_and_each_keeps_its_order(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogOptions(segment_bytes=20_000)) as log:
        ranges: list[tuple[int, int]] = []

        def thread(name: int) -> None:
            for index in range(30):
                found = log.append(batch(b"t%d %d" % (name, index), b"t%d %d+" % (name, index)))
                ranges.append(found)

        threads = [threading.Thread(target=thread, args=(name,)) for name in range(24)]
        for started in threads:
            started.start()
        for started in threads:
            started.join()
        found = content(log)
        assert [seq for seq, _ in found] == list(range(1, 24 * 60 + 1))
        assert sorted(seq for first, last in ranges for seq in range(first, last + 1)) == [seq for seq, _ in found]
        for name in [f"t{n} " for n in range(24)]:
            own = [payload.decode() for _, payload in found if payload.decode().startswith(name)]
            assert own == sorted(own, key=lambda text: (int(text.split()[1].rstrip("+")), text.endswith("+")))
        assert log.counters.records < log.counters.messages / 2, "appends that wait share a sync"
