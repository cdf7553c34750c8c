"""Single records: the same messages as Arrow has them, from a file that is kept open no longer than it should be."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.logs import batches, encode
from forebay.broker.payloads import Payloads
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.block import CRC_FOLLOWS, HEADER, Header, parse_header
from forebay.commitlog.chunk import Chunk
from forebay.commitlog.columns import BodyRefused, decode
from forebay.commitlog.plain import HEADERS, PARTITION, TRACE_ID, TRANSACTION_ID, PlainRecord
from forebay.commitlog.single_reads import _WINDOW_BYTES
from forebay.commitlog.state import RecordPosition
from forebay.errors import RangeGone, SegmentDamaged
from forebay.filesystem import RealFile
from forebay.model.message import MessageBatch

TEXT_COLUMNS = {PARTITION: "partition", TRANSACTION_ID: "transaction_id", TRACE_ID: "trace_id", HEADERS: "headers"}


def header_of(data: bytes) -> Header:
    header = parse_header(data, 0, 0)
    assert isinstance(header, Header)
    return header


@given(batches(), st.integers(1, 1 << 40), st.binary(min_size=16, max_size=16), st.booleans(), st.data())
def test_values_are_those_that_arrow_has(
    batch: MessageBatch, first_seq: int, tag: bytes, compress: bool, data: st.DataObject
) -> None:
    record = b"".join(encode([batch], first_seq, tag=tag, compress=compress))
    header = header_of(record)
    plain = PlainRecord(record, 0, header)
    chunk = Chunk.of(record, first_seq, len(batch))
    arrow_tag, arrow = decode(chunk, chunk.data_at, header)
    assert (plain.tag, plain.first_seq, plain.count) == (arrow_tag, first_seq, arrow.num_rows)
    assert plain.created_us() == arrow.column("created_at").cast("int64").to_pylist()
    assert list(plain.flags()) == arrow.column("flags").to_pylist()
    for number, name in TEXT_COLUMNS.items():
        texts = arrow.column(name).to_pylist()
        assert plain.texts(number) == texts
        assert plain.has(number) or not any(texts)
    payloads = arrow.column("payload").to_pylist()
    start = data.draw(st.integers(0, plain.count))
    stop = data.draw(st.integers(start, plain.count))
    assert Payloads(plain.payloads(start, stop)).as_list() == payloads[start:stop]
    assert plain.payload_sizes() == list(map(len, payloads))


@given(batches(), st.data())
def test_no_body_makes_it_fail_otherwise_than_by_refusing(batch: MessageBatch, data: st.DataObject) -> None:
    record = bytearray(b"".join(encode([batch], 1)))
    at = data.draw(st.integers(HEADER.size, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    try:
        plain = PlainRecord(bytes(record), 0, header_of(bytes(record)))
        assert len(Payloads(plain.payloads(0, plain.count)).as_list()) == plain.count
    except BodyRefused:
        pass


def filled(log: CommitLog, sizes: list[int]) -> list[RecordPosition]:
    return [log.append_record(MessageBatch([os.urandom(size)], [log.next_seq])) for size in sizes]


def check(log: CommitLog, place: RecordPosition, size: int) -> None:
    record = log.read_record(place.first_seq, place.position)
    assert record.created_us() == [place.first_seq], "each was created at the time that is its seq"
    assert Payloads(record.payloads(0, 1)).ends() == [size]


@given(order=st.permutations(range(8)))
def test_records_are_found_in_any_order_small_and_large(
    order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    sizes = [10, 200_000, 0, 130_000, 70_000, 70_000, 5, 1]
    with CommitLog.open(tmp_path_factory.mktemp("log"), LogOptions(segment_bytes=300_000)) as log:
        places = filled(log, sizes)
        assert len(log.state.entries) >= 1, "there is more than one segment"
        for number in order:
            check(log, places[number], sizes[number])


def test_large_records_behind_each_other_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        size = 4 * _WINDOW_BYTES
        places = filled(log, [size] * 5)
        read_bytes: list[int] = []
        read_at = RealFile.read_at

        def counted(self: RealFile, size: int, position: int) -> bytes:
            data = read_at(self, size, position)
            read_bytes.append(len(data))
            return data

        monkeypatch.setattr(RealFile, "read_at", counted)
        check(log, places[0], size)  # that it is large is not known before it is read
        read_bytes.clear()
        for place in places[1:]:
            check(log, place, size)
        assert sum(read_bytes) < 4 * (size + 1024)


def test_what_is_appended_behind_a_window_is_found(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        for _ in range(20):
            (place,) = filled(log, [100])
            check(log, place, 100)
            check(log, place, 100)


def open_segments(log: CommitLog) -> list[str]:
    """Segments of the log that this process has open for reading alone."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            flags = int(Path(f"/proc/self/fdinfo/{link.name}").read_text().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        if target.startswith(f"{log.base}/") and flags & os.O_ACCMODE == os.O_RDONLY:
            found.append(target)
    return found


def test_a_removed_segment_is_not_kept_open(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, LogOptions(segment_bytes=1000))
    first, *_, last = filled(log, [600] * 4)
    check(log, first, 600)
    assert len(open_segments(log)) == 1
    log.truncate_before(last.first_seq)
    assert open_segments(log) == [], "its space would not be free"
    with pytest.raises(RangeGone):
        log.read_record(first.first_seq, first.position)
    check(log, last, 600)
    log.close()
    assert open_segments(log) == []


def test_many_logs_keep_few_segments_open(tmp_path: Path) -> None:
    logs = [CommitLog.open(tmp_path / str(number)) for number in range(70)]
    places = [filled(log, [100])[0] for log in logs]
    for _ in range(2):
        for log, place in zip(logs, places, strict=True):
            check(log, place, 100)
    assert sum(len(open_segments(log)) for log in logs) <= 64
    assert open_segments(logs[-1]), "the last one read is kept"
    for log in logs:
        log.close()


def test_logs_that_make_room_for_each_other_do_not_wait_for_each_other(tmp_path: Path) -> None:
    logs = [CommitLog.open(tmp_path / str(number)) for number in range(80)]
    places = [filled(log, [100])[0] for log in logs]

    def read(start: int) -> None:
        for step in range(400):
            number = (start + 7 * step) % len(logs)
            check(logs[number], places[number], 100)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    for log in logs:
        log.close()


def test_a_seq_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        filled(log, [1])
        with pytest.raises(RangeGone):
            log.read_record(2, 0)


def test_a_damaged_record_is_told_and_its_neighbours_are_read(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        places = filled(log, [100] * 3)
        (segment,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 400]
        damage(segment, places[1].position + 60)
        check(log, places[0], 100)
        with pytest.raises(SegmentDamaged, match="CRC does not match"):
            log.read_record(places[1].first_seq, places[1].position)
        check(log, places[2], 100)


def damage(segment: Path, position: int) -> None:
    with segment.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


def test_a_record_without_a_crc_is_read_when_it_makes_sense(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        (place,) = filled(log, [100])
        (segment,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 100]
        data = segment.read_bytes()
        header = header_of(data)
        # As another writer would leave it: no flag, and where the CRC stood nothing.
        word = (int.from_bytes(data[:8], "little") & ~CRC_FOLLOWS) + 4
        segment.write_bytes(word.to_bytes(8, "little") + data[8 : header.size - 4] + bytes(4) + data[header.size :])
        check(log, place, 100)
