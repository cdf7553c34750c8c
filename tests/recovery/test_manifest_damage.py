"""The manifest files broken in every way: the same state, a state one write earlier, or an error that names itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from fixtures.logs import BASE, TINY, content, numbered, open_on
from forebay.commitlog.manifest import ManifestStore
from forebay.commitlog.recovery import read_manifest
from forebay.commitlog.salvage import salvage
from forebay.errors import LogUnopenable, ManifestCorrupted, ManifestNotFound, UnsupportedManifestVersion
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import FaultyFilesystem, Operation, SimulatedCrash, Stop
from forebay.testing.simulated_disk import SimulatedDisk

FILES = ("manifest.1", "manifest.2", "manifest.current")


def make_log() -> tuple[SimulatedDisk, list[tuple[int, bytes]]]:
    """Three sealed segments and an active one, closed."""
    disk = SimulatedDisk()
    log = open_on(disk)
    for _ in range(3):
        for _ in range(2):
            log.append(numbered(log.next_seq, 3))
        log.roll()
    log.append(numbered(log.next_seq, 2))
    expected = content(log)
    log.close()
    return disk, expected


def opened_or_salvaged(disk: SimulatedDisk, expected: list[tuple[int, bytes]]) -> str:
    """Open; where that is refused, by name, salvage and open. Nothing may be missing either way."""
    outcome, message = "opened", "forebay log salvage"
    try:
        log = open_on(disk)
    except LogUnopenable as error:
        outcome, message = type(error).__name__, str(error)
        salvage(disk, BASE, clock=FakeClock())
        log = open_on(disk)
    assert "forebay log salvage" in message
    assert content(log) == expected
    assert log.append(numbered(log.next_seq, 1)).first_seq == expected[-1][0] + 1
    return outcome


def put(disk: SimulatedDisk, name: str, data: bytes) -> None:
    file = disk.open(BASE / name, write=True, create=True)
    file.truncate(0)
    file.write_at([data], 0)


def get(disk: SimulatedDisk, name: str) -> bytes:
    return disk.open(BASE / name).read_at(1 << 20, 0)


def bit_flips(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            yield bytes(flipped)


@pytest.mark.parametrize("name", FILES)
def test_every_bit_flip_is_noticed_or_without_effect(name: str) -> None:
    disk, expected = make_log()
    in_force = f"manifest.{get(disk, 'manifest.current')[0]}"
    for damaged in bit_flips(get(disk, name)):
        copy = disk.killed()
        put(copy, name, damaged)
        outcome = opened_or_salvaged(copy, expected)
        assert outcome == ("ManifestCorrupted" if name in (in_force, "manifest.current") else "opened")


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_noticed_or_without_effect(name: str) -> None:
    disk, expected = make_log()
    in_force = f"manifest.{get(disk, 'manifest.current')[0]}"
    whole = get(disk, name)
    for size in range(len(whole)):
        copy = disk.killed()
        put(copy, name, whole[:size])
        outcome = opened_or_salvaged(copy, expected)
        assert outcome == ("ManifestCorrupted" if name in (in_force, "manifest.current") else "opened")


@pytest.mark.parametrize("missing", [("manifest.1",), ("manifest.2",), ("manifest.current",), FILES, FILES[:2]])
def test_missing_files_never_make_a_fresh_log(missing: tuple[str, ...]) -> None:
    disk, expected = make_log()
    for name in missing:
        disk.remove(BASE / name)
    outcome = opened_or_salvaged(disk, expected)
    if "manifest.current" in missing:
        assert outcome == "ManifestNotFound"


def test_a_slot_that_tells_of_messages_is_enough_to_refuse_a_fresh_log() -> None:
    """All segments may be gone by retention; the numbers still must not start again at 1."""
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 5))
    log.truncate_before(6)
    log.close()
    disk.remove(BASE / "manifest.current")
    with pytest.raises(ManifestNotFound, match=r"messages up to 5"):
        open_on(disk)
    salvage(disk, BASE, clock=FakeClock())
    assert open_on(disk).next_seq == 6


def test_both_slots_damaged_is_rebuilt_from_the_segments() -> None:
    disk, expected = make_log()
    for name in FILES[:2]:
        put(disk, name, b"\0" * 40)
    assert opened_or_salvaged(disk, expected) == "ManifestCorrupted"


def resealed(content: bytes) -> bytes:
    """The content with the checksum that fits it."""
    zeroed = content[:20] + bytes(4) + content[24:]
    return content[:20] + zlib.crc32(zeroed).to_bytes(4, "little") + content[24:]


def test_another_version_is_refused_by_its_number_and_salvage_refuses_too() -> None:
    disk, _ = make_log()
    name = f"manifest.{get(disk, 'manifest.current')[0]}"
    whole = get(disk, name)
    put(disk, name, resealed(whole[:4] + (7).to_bytes(4, "little") + whole[8:]))
    before = disk.fingerprint()
    with pytest.raises(
        UnsupportedManifestVersion, match="version 7 is not supported, this Forebay reads versions up to 2"
    ):
        open_on(disk)
    with pytest.raises(UnsupportedManifestVersion):
        salvage(disk, BASE)
    assert disk.fingerprint() == before


@pytest.mark.parametrize(
    ("at", "new", "complaint"),
    [
        (0, b"PK\x03\x04", "starts with"),
        (16, (1 << 31).to_bytes(4, "little"), "do not hold 2147483648 files"),
        (8, bytes(8), "next_seq 0"),
        (52, b"\x1f\x00", "is not the path of a segment"),
        (54, b"../../etc/passwd", "is not the path of a segment"),
    ],
)
def test_well_sealed_nonsense_is_refused_by_name(at: int, new: bytes, complaint: str) -> None:
    disk, _ = make_log()
    name = f"manifest.{get(disk, 'manifest.current')[0]}"
    whole = get(disk, name)
    put(disk, name, resealed(whole[:at] + new + whole[at + len(new) :]))
    with pytest.raises(ManifestCorrupted, match=complaint):
        open_on(disk)


@pytest.mark.parametrize(
    "new", [b"\x20\x00../../../etc/passwd/xxxxxxx.data", b"\x1f\x00", b"\x20\x002026/01/01/00000000000000zz.data"]
)
def test_an_entry_whose_path_is_none_of_a_segment_is_never_opened(new: bytes) -> None:
    disk, _ = make_log()
    name = f"manifest.{get(disk, 'manifest.current')[0]}"
    whole = get(disk, name)
    at = 86 + 24
    put(disk, name, resealed(whole[:at] + new + whole[at + len(new) :]))
    log = open_on(disk)
    with pytest.raises(ManifestCorrupted, match="is not the path of a segment"):
        list(log.read(1))


def is_manifest(operation: Operation) -> bool:
    return operation.name in ("write", "sync", "truncate") and operation.path.name.startswith("manifest")


STEPS = [
    ("4: writing the other slot", "before", 1),
    ("4 done, before 5", "after", 1),
    ("5: syncing it", "before", 2),
    ("after 5, before 6", "after", 2),
    ("6: writing the pointer", "before", 3),
    ("after 6, before 7", "after", 3),
    ("7: syncing the pointer", "before", 4),
    ("after 7", "after", 4),
]


@pytest.mark.parametrize(("step", "when", "number"), STEPS, ids=[step for step, _, _ in STEPS])
def test_a_crash_at_each_of_the_seven_steps_leaves_the_old_or_the_new_manifest(
    step: str, when: str, number: int
) -> None:
    """The seed's crash table, row by row, with everything that a power cut may do to what was not synced."""
    disk = SimulatedDisk()
    faulty = FaultyFilesystem(disk)
    log = open_on(faulty)
    log.append(numbered(1, 3))
    log.roll()
    log.append(numbered(4, 3))
    expected = content(log)
    before = read_manifest(disk, BASE, ManifestStore(disk, BASE))
    assert before is not None
    seen = 0

    def plan(operation: Operation) -> Stop | None:
        nonlocal seen
        seen += is_manifest(operation)
        return Stop(after=when == "after") if is_manifest(operation) and seen == number else None

    faulty.plan = plan
    with pytest.raises(SimulatedCrash):
        log.roll()
    for crashed in disk.crash_states(len(disk.journal)):
        found = read_manifest(crashed, BASE, ManifestStore(crashed, BASE))
        assert found is not None
        assert found.generation in (before.generation, before.generation + 1)
        if when == "before" and number <= 3:
            assert found.generation == before.generation
        if (when, number) == ("after", 4):
            assert found.generation == before.generation + 1
        assert content(open_on(crashed, TINY)) == expected
