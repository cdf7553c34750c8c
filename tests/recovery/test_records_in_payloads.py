"""Payloads that hold records, as a backup of a log does: no scan takes them for records of the log they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.logs import BASE, batch, content, encode, numbered, open_on
from forebay.commitlog import block
from forebay.commitlog.inspection import verify
from forebay.commitlog.salvage import salvage
from forebay.commitlog.scan import Record, SegmentScan
from forebay.errors import DamagedRange
from forebay.testing.simulated_disk import SimulatedDisk

HUGE = 1 << 40


def plain_record(first_seq: int, payload: bytes) -> bytes:
    """As version 1 has it: whole wherever it stands."""
    pieces = block.encode([batch(payload)], first_seq, is_placed=False)
    return b"".join(block.sealed(pieces, block.NO_PLACE))


INSIDE = {
    "version 1, huge seq": plain_record(HUGE, b"trojan"),
    "version 1, the seq behind": plain_record(4, b"trojan"),
    "another place, huge seq": b"".join(encode([batch(b"trojan")], HUGE, position=8)),
    "another place, the seq behind": b"".join(encode([batch(b"trojan")], 4, position=8)),
}
each_payload = pytest.mark.parametrize("payload", INSIDE.values(), ids=INSIDE.keys())


def damaged(disk: SimulatedDisk, path: str, position: int) -> SimulatedDisk:
    copy = disk.killed()
    file = copy.open(Path(BASE) / path, write=True)
    file.write_at([bytes([file.read_at(1, position)[0] ^ 0xFF])], position)
    return copy


@each_payload
def test_torn_record_is_cut_off_whatever_its_payload_holds(payload: bytes) -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 2))
    start, path = log.state.position, log.state.path
    log.append(batch(bytes(9) + payload))
    end = log.state.position
    for position in range(start, end):
        torn = damaged(disk, path, position)
        with open_on(torn) as found:
            assert content(found) == [(1, b"1"), (2, b"2")], position
            assert (found.next_seq, found.recovery.damage) == (3, ())


@each_payload
def test_rotten_record_costs_itself_whatever_its_payload_holds(payload: bytes) -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 2))
    start, path = log.state.position, log.state.path
    log.append(batch(bytes(9) + payload))
    end = log.state.position
    log.append(numbered(4, 1))
    log.close()
    for position in range(start, end):
        rotten = damaged(disk, path, position)
        with open_on(rotten) as found:
            lost: list[DamagedRange] = []
            seqs = [seq for part in found.read(1, on_damage=lost.append) for seq in part.column("seq").to_pylist()]
            assert (seqs, [(d.first_seq, d.last_seq) for d in lost]) == ([1, 2, 4], [(3, 3)]), position
        salvage(rotten, BASE)
        assert verify(rotten, BASE).is_good
        with open_on(rotten) as found:
            assert content(found) == [(1, b"1"), (2, b"2"), (4, b"4")]


def test_in_a_segment_of_version_1_no_record_is_further_on_than_its_bytes_allow(tmp_path: Path) -> None:
    outer = bytearray(plain_record(1, bytes(9) + plain_record(HUGE, b"trojan")))
    outer[-1] ^= 0xFF
    path = "2026/01/01/0000000000000001.data"
    disk = SimulatedDisk()
    disk.make_directory(BASE)
    file = disk.open(BASE / "segment", write=True, create=True)
    behind = plain_record(2, b"good")
    file.write_at([bytes(outer), behind], 0)
    found = list(SegmentScan(file, path, position=0, end=len(outer) + len(behind), next_seq=1))
    assert isinstance(found[0], DamagedRange)
    assert (found[0].first_seq, found[0].last_seq) == (1, 1)
    assert [each.header.first_seq for each in found[1:] if isinstance(each, Record)] == [2]
