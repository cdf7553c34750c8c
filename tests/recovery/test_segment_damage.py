"""A small segment broken at every byte: at most the damaged record is lost, its range is told, the rest is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.logs import BASE, TINY, content, numbered, open_on, rows
from forebay.commitlog import CommitLog, block
from forebay.commitlog.block import Header, parse_header
from forebay.commitlog.inspection import verify
from forebay.commitlog.salvage import salvage
from forebay.errors import DamagedRange, LogUnopenable, SegmentDamaged
from forebay.testing.fake_clock import FakeClock
from forebay.testing.simulated_disk import SimulatedDisk

RECORDS = ((1, 2), (3, 5), (6, 6))
"""Seq ranges of the records of the segment that is broken."""
MASKS = (0xFF, 0x01, 0x40, 0x80)


def make_log(*, sealed: bool, closed: bool) -> tuple[SimulatedDisk, str]:
    """A log whose first segment has three records; returns that segment's path."""
    disk = SimulatedDisk()
    log = open_on(disk)
    for first, last in RECORDS:
        log.append(numbered(first, last - first + 1))
    path = log.state.path
    if sealed:
        log.roll()
        log.append(numbered(7, 2))
    if closed:
        log.close()
    return disk.killed(), path


def broken(disk: SimulatedDisk, path: str, change: Callable[[bytearray], None]) -> SimulatedDisk:
    copy = disk.killed()
    file = copy.open(BASE / path, write=True)
    data = bytearray(file.read_at(1 << 20, 0))
    change(data)
    file.truncate(len(data))
    file.write_at([bytes(data)], 0)
    return copy


def flips(disk: SimulatedDisk, path: str) -> Iterator[SimulatedDisk]:
    size = disk.status(BASE / path).size
    for position in range(size):
        for mask in MASKS:

            def flip(data: bytearray, position: int = position, mask: int = mask) -> None:
                data[position] ^= mask

            yield broken(disk, path, flip)


def truncations(disk: SimulatedDisk, path: str) -> Iterator[SimulatedDisk]:
    for size in range(disk.status(BASE / path).size):

        def cut(data: bytearray, size: int = size) -> None:
            del data[size:]

        yield broken(disk, path, cut)


def lost_of(damage: list[DamagedRange], end: int) -> set[int]:
    return {seq for d in damage for seq in range(d.first_seq, (end if d.last_seq is None else d.last_seq) + 1)}


def read_around(log: CommitLog) -> tuple[list[tuple[int, bytes]], list[DamagedRange]]:
    damage: list[DamagedRange] = []
    return list(rows(log.read(log.first_seq, on_damage=damage.append))), damage


def records_hit(lost: set[int]) -> list[tuple[int, int]]:
    return [(first, last) for first, last in RECORDS if lost & set(range(first, last + 1))]


@pytest.mark.parametrize("sealed", [True, False])
def test_every_byte_flip_loses_at_most_its_record_and_tells_which(*, sealed: bool) -> None:
    disk, path = make_log(sealed=sealed, closed=True)
    everything = dict(content(open_on(disk.killed())))
    for copy in flips(disk, path):
        log = open_on(copy)
        found, damage = read_around(log)
        lost = set(everything) - {seq for seq, _ in found}
        assert len(records_hit(lost)) == 1
        assert lost == lost_of(damage, len(everything))
        assert all(everything[seq] == payload for seq, payload in found), "a damaged message was passed on"
        with pytest.raises(SegmentDamaged, match="forebay log salvage"):
            list(log.read(1))
        log.close()
        assert lost == lost_of(verify(copy, BASE).damage, len(everything))


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_salvage_makes_every_flipped_segment_readable_and_keeps_the_bytes(*, sealed: bool) -> None:
    disk, path = make_log(sealed=sealed, closed=True)
    everything = dict(content(open_on(disk.killed())))
    for copy in flips(disk, path):
        before = copy.open(BASE / path).read_at(1 << 20, 0)
        report = salvage(copy, BASE, clock=FakeClock())
        assert report.changed
        kept = b"".join(copy.open(BASE / name).read_at(1 << 20, 0) for name in report.quarantined)
        (damage,) = report.damage
        assert before[damage.position : damage.position + damage.size] in kept
        log = open_on(copy)
        found = content(log)
        assert set(everything) - {seq for seq, _ in found} == lost_of(report.damage, len(everything))
        assert all(everything[seq] == payload for seq, payload in found)
        assert log.append(numbered(log.next_seq, 1)).first_seq == len(everything) + 1
        log.close()
        assert verify(copy, BASE).is_good
        assert not salvage(copy, BASE, clock=FakeClock()).changed


def test_a_flip_behind_the_manifest_loses_at_most_its_record() -> None:
    """The active segment after a kill: only the scan knows its records, and later ones must not be cut off."""
    disk, path = make_log(sealed=False, closed=False)
    intact = open_on(disk.killed())
    everything = dict(content(intact))
    for index, copy in enumerate(flips(disk, path)):
        log = open_on(copy)
        found, damage = read_around(log)
        lost = set(everything) - {seq for seq, _ in found}
        if index // len(MASKS) >= intact.state.position:
            assert not lost, "only zeros stand there"
            assert log.recovery.torn_bytes
            continue
        assert len(records_hit(lost)) == 1
        if log.recovery.torn_bytes:
            assert lost == {6}, "only the last record may be taken for a torn write"
            assert log.recovery.torn_kept_in is not None
        else:
            assert lost == lost_of(damage, len(everything)) == lost_of(list(log.recovery.damage), len(everything))
        assert all(everything[seq] == payload for seq, payload in found)


def test_every_truncation_of_a_sealed_segment_is_told_to_the_message() -> None:
    disk, path = make_log(sealed=True, closed=True)
    everything = dict(content(open_on(disk.killed())))
    for copy in truncations(disk, path):
        log = open_on(copy)
        found, damage = read_around(log)
        lost = set(everything) - {seq for seq, _ in found}
        assert lost
        assert lost == lost_of(damage, len(everything))
        log.close()
        assert lost == lost_of(verify(copy, BASE).damage, len(everything))
        report = salvage(copy, BASE, clock=FakeClock())
        assert lost == lost_of(report.damage, len(everything))
        again = open_on(copy)
        assert content(again) == found
        assert again.next_seq == len(everything) + 1


def test_every_truncation_of_a_closed_active_segment_is_refused_and_salvaged() -> None:
    disk, path = make_log(sealed=False, closed=True)
    everything = dict(content(open_on(disk.killed())))
    for copy in truncations(disk, path):
        with pytest.raises(LogUnopenable, match=r"has \d+ bytes, the manifest knows \d+.*forebay log salvage"):
            open_on(copy)
        report = salvage(copy, BASE, clock=FakeClock())
        log = open_on(copy)
        found = content(log)
        assert set(everything) - {seq for seq, _ in found} == lost_of(report.damage, len(everything))
        assert log.next_seq == len(everything) + 1, "a number was given out twice"


def test_every_truncation_behind_the_manifest_is_a_torn_tail() -> None:
    disk, path = make_log(sealed=False, closed=False)
    everything = content(open_on(disk.killed()))
    sizes = []
    for copy in truncations(disk, path):
        data = copy.open(BASE / path).read_at(1 << 20, 0)
        log = open_on(copy)
        found = content(log)
        assert found == everything[: len(found)]
        torn = data[log.state.position :].rstrip(b"\0")
        assert log.recovery.torn_bytes == len(torn)
        sizes.append(len(found))
    assert sorted(set(sizes)) == [0, 2, 5, 6]


def test_a_missing_segment_is_told_and_salvage_goes_on_without_it() -> None:
    disk, path = make_log(sealed=True, closed=True)
    disk.remove(BASE / path)
    log = open_on(disk)
    with pytest.raises(LogUnopenable, match="cannot open the segment"):
        list(log.read(1))
    assert [seq for seq, _ in rows(log.read(7))] == [7, 8]
    log.close()
    report = salvage(disk, BASE, clock=FakeClock())
    assert [(d.first_seq, d.last_seq) for d in report.damage] == [(1, 6)]
    assert [seq for seq, _ in content(open_on(disk))] == [7, 8]


def test_a_record_hidden_in_a_payload_is_not_found_by_the_search() -> None:
    """Behind a damaged body the scan goes where the header says, not to what looks like a record on the way."""
    disk = SimulatedDisk()
    log = open_on(disk, TINY)
    log.append(numbered(1, 1))
    log.append(numbered(2, 1))
    file = disk.open(BASE / log.state.path)
    forged = file.read_at(file.size(), log.state.position // 2)
    log.truncate_before(99)
    outer = log.append(numbered(3, 1).__class__([forged + bytes(7)], [0])).first_seq
    log.append(numbered(4, 1))
    path = log.state.path
    log.close()

    def flip(data: bytearray) -> None:
        data[100] ^= 1

    damage: list[DamagedRange] = []
    found = list(rows(open_on(broken(disk, path, flip)).read(outer, on_damage=damage.append)))
    assert found == [(outer + 1, b"4")]


def moved(data: bytearray, path: str, start: int, distance: int) -> bytes:
    """The records from `start` on as their writer would have written them so much further on."""
    found, position = b"", start
    while isinstance(header := parse_header(bytes(data), position, position), Header):
        place = block.checksum_of_place(block.checksum_of_path(path), position + distance)
        found += b"".join(block.sealed([bytes(data[position : position + header.size - block.CRC_BYTES])], place))
        position += header.size
        if len(data) - position < block.HEADER_BYTES:
            break
    return found


@pytest.mark.parametrize("size", [4, 39, 40, 64, 500])
def test_stray_bytes_between_records_cost_nothing(size: int) -> None:
    disk, path = make_log(sealed=False, closed=False)
    everything = content(open_on(disk.killed()))
    at = next(open_on(disk.killed()).read_records(1)).header.size

    def insert(data: bytearray) -> None:
        data[at:] = bytes(size) + moved(data, path, at, size)

    copy = broken(disk, path, insert)
    log = open_on(copy)
    assert content(log) == everything
    log.close()
    assert verify(copy, BASE).is_good
    salvage(copy, BASE, clock=FakeClock())
    assert not salvage(copy, BASE, clock=FakeClock()).changed
    assert content(open_on(copy)) == everything


def test_verifying_beside_retention_reports_no_damage() -> None:
    disk, _ = make_log(sealed=True, closed=False)
    log = open_on(disk)
    log.roll()
    log.append(numbered(log.next_seq, 3))
    log.roll()
    is_truncated = False

    def truncate(done: int, total: int) -> None:
        nonlocal is_truncated
        if not is_truncated:
            is_truncated = True
            log.truncate_before(log.next_seq)

    found = verify(disk, BASE, truncate)
    assert found.is_good
    assert any("removed by retention meanwhile" in note for note in found.notes)


def test_record_of_a_newer_body_is_told_by_its_version_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append(numbered(1, 1))
        with monkeypatch.context() as newer:
            newer.setattr("forebay.commitlog.block.BODY_VERSION", 2)
            log.append(numbered(2, 1))
        log.append(numbered(3, 1))
    [path] = [path for path in tmp_path.rglob("*.data") if path.stat().st_size]
    before = path.read_bytes()
    found: list[DamagedRange] = []
    with CommitLog.open(tmp_path) as log:
        with pytest.raises(SegmentDamaged, match=r"body version 2, .* not known; messages 2-2 lost"):
            list(log.read(1))
        assert [seq for seq, _ in rows(log.read(1, on_damage=found.append))] == [1, 3]
        assert log.next_seq == 4
    assert [(one.first_seq, one.last_seq) for one in found] == [(2, 2)]
    assert path.read_bytes() == before
