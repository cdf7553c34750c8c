"""Known damages of a FastQueue's files, each made on purpose: reading goes on behind it, and nothing is thrown away."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fixtures.sendqueues import DIRECTORY, drained, open_fastqueue
from forebay.errors import UnsupportedSendQueueVersion
from forebay.sendqueue.disk.blocks import HEADER, IS_SNAPPY, packed
from forebay.testing.simulated_disk import SimulatedDisk

META = DIRECTORY / "fastqueue.meta"
BATCHES = [b"%02d" % number + random.Random(number).randbytes(50) for number in range(12)]


def made(batches: list[bytes] = BATCHES) -> SimulatedDisk:
    """The disk of a queue that was closed with these batches in it, in several chunks."""
    disk = SimulatedDisk()
    queue = open_fastqueue(disk)
    for batch in batches:
        queue.push(batch)
    queue.close()
    return disk.killed()


def content(disk: SimulatedDisk, path: Path) -> bytes:
    return disk.open(path).read_at(1 << 20, 0)


def overwrite(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    file = disk.open(path, write=True, create=True)
    file.truncate(0)
    file.write_at([data], 0)


def chunks_of(disk: SimulatedDisk) -> list[Path]:
    return [DIRECTORY / name for name in disk.list_directory(DIRECTORY) if len(name) == 16]


def quarantined(disk: SimulatedDisk) -> list[str]:
    folder = DIRECTORY / "quarantine"
    return disk.list_directory(folder) if "quarantine" in disk.list_directory(DIRECTORY) else []


def is_subsequence(found: list[bytes], of: list[bytes]) -> bool:
    left = iter(of)
    return all(batch in left for batch in found)


def test_a_flipped_byte_anywhere_costs_one_batch_at_most_and_is_told() -> None:
    chunk = chunks_of(made())[1]
    for position in range(len(content(made(), chunk))):
        for mask in (0x01, 0x40, 0xFF):
            disk = made()
            damaged = bytearray(content(disk, chunk))
            damaged[position] ^= mask
            overwrite(disk, chunk, bytes(damaged))
            queue = open_fastqueue(disk)
            found = drained(queue)
            assert len(found) == len(BATCHES) - 1, (position, mask)
            assert is_subsequence(found, BATCHES)
            assert queue.counts["damaged"] == len(quarantined(disk)) == 1
            assert queue.figures().batches == queue.figures().bytes == 0


@pytest.mark.parametrize("is_meta_lost", [False, True])
def test_a_chunk_cut_short_costs_what_is_cut_off(is_meta_lost: bool) -> None:
    first, last = chunks_of(made())[0], chunks_of(made())[-1]
    for chunk in (first, last):
        whole = content(made(), chunk)
        for size in range(0, len(whole), 7):
            disk = made()
            overwrite(disk, chunk, whole[:size])
            if is_meta_lost:
                disk.remove(META)
            found = drained(open_fastqueue(disk))
            assert is_subsequence(found, BATCHES)
            assert len(found) >= len(BATCHES) - 5


def test_a_lost_chunk_costs_its_batches_and_no_other() -> None:
    for chunk in chunks_of(made()):
        disk = made()
        lost = content(disk, chunk)
        disk.remove(chunk)
        found = drained(open_fastqueue(disk))
        assert is_subsequence(found, BATCHES)
        assert all((batch in found) == (batch not in lost) for batch in BATCHES)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"version": 2}', b"\0" * 40, b'{"version": true}'])
def test_a_meta_file_that_cannot_be_read_is_kept_and_every_batch_is_found(damage: bytes) -> None:
    disk = made()
    overwrite(disk, META, damage)
    assert drained(open_fastqueue(disk)) == BATCHES
    assert any(name.startswith("fastqueue.meta") for name in quarantined(disk))


@pytest.mark.parametrize(
    "change",
    [{"reader_offset": 10**6}, {"confirmed": [[5, 1]]}, {"confirmed": 7}, {"entry_count": -1}, {"writer_offset": "x"}],
)
def test_a_meta_file_that_contradicts_itself_is_not_believed(change: dict[str, object]) -> None:
    disk = made()
    overwrite(disk, META, json.dumps({**json.loads(content(disk, META)), **change}).encode())
    assert drained(open_fastqueue(disk)) == BATCHES


def test_a_lost_meta_file_is_no_fresh_queue() -> None:
    disk = made()
    disk.remove(META)
    queue = open_fastqueue(disk)
    assert queue.figures().batches == len(BATCHES)
    queue.close()
    assert drained(open_fastqueue(disk)) == BATCHES


def test_a_stale_meta_file_brings_batches_back_and_loses_none() -> None:
    disk = made()
    stale = content(disk, META)
    queue = open_fastqueue(disk)
    for _ in range(8):
        entry = queue.claim()
        assert entry is not None
        queue.confirm(entry)
    queue.push(b"newer")
    queue.close()
    overwrite(disk, META, stale)
    found = drained(open_fastqueue(disk))
    assert is_subsequence(found, [*BATCHES, b"newer"])
    assert set(found) >= {*BATCHES[8:], b"newer"}


def test_a_chunk_that_meta_does_not_know_is_adopted() -> None:
    disk = made()
    end = json.loads(content(disk, META))["writer_offset"]
    overwrite(disk, DIRECTORY / f"{end:016x}", packed(b"orphan", end, compress=False))
    assert drained(open_fastqueue(disk)) == [*BATCHES, b"orphan"]


def test_a_newer_version_is_refused_and_nothing_is_changed() -> None:
    disk = made()
    overwrite(disk, META, json.dumps({**json.loads(content(disk, META)), "version": 3}).encode())
    before = disk.fingerprint()
    with pytest.raises(UnsupportedSendQueueVersion, match="version 3 is not supported"):
        open_fastqueue(disk)
    assert disk.fingerprint() == before


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_snappy", [False, True])
def test_a_queue_of_the_originals_is_read_to_its_end(version: int, is_snappy: bool) -> None:
    """Their blocks have no CRC; version 1 counts nothing, and is counted here however long that takes."""
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    stream = b"".join(_their_block(batch, is_snappy=is_snappy) for batch in BATCHES)
    overwrite(disk, DIRECTORY / f"{0:016x}", stream)
    meta: dict[str, object] = {
        "name": "fastqueue",
        "reader_offset": 0,
        "writer_offset": len(stream),
        "version": version,
    }
    if version == 2:
        meta |= {"entry_count": len(BATCHES), "total_bytes": sum(map(len, BATCHES))}
    overwrite(disk, META, json.dumps(meta).encode())
    queue = open_fastqueue(disk)
    assert queue.figures().batches == len(BATCHES)
    queue.push(b"ours")
    entry = queue.claim()
    assert entry is not None
    queue.confirm(entry)
    queue.close()
    assert drained(open_fastqueue(disk)) == [*BATCHES[1:], b"ours"]


def _their_block(batch: bytes, *, is_snappy: bool) -> bytes:
    if not is_snappy:
        return HEADER.pack(len(batch)) + batch
    import cramjam

    data = bytes(cramjam.snappy.compress_raw(batch))
    return HEADER.pack(len(data) | IS_SNAPPY) + data


def test_zeros_where_a_header_should_be_are_passed() -> None:
    disk = made(BATCHES[:6])
    queue = open_fastqueue(disk)
    path = chunks_of(disk)[-1]
    whole = content(disk, path)
    offset = int(path.name, 16) + len(whole) + 64
    overwrite(disk, path, whole + bytes(64) + packed(b"behind", offset, compress=False))
    queue.close()
    disk = disk.killed()
    assert drained(open_fastqueue(disk)) == [*BATCHES[:6], b"behind"]


def test_a_block_that_is_no_batch_of_ours_is_passed_and_kept() -> None:
    disk = made([b"one", b"undecodable, not of ours", b"two"])
    assert drained(open_fastqueue(disk)) == [b"one", b"two"]
    assert len(quarantined(disk)) == 1


def test_a_batch_that_holds_a_block_is_not_taken_for_one_when_it_is_damaged() -> None:
    inner = packed(b"smuggled", 0, compress=False)
    disk = made([b"one", b"outer " + inner, b"two"])
    path = chunks_of(disk)[0]
    overwrite(disk, path, content(disk, path).replace(b"outer", b"OUTER"))
    assert drained(open_fastqueue(disk)) == [b"one", b"two"]
