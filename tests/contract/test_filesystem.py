"""What every `Filesystem` does alike: the real one, the simulated disk, and a faulty one without faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.filesystem import AlreadyLocked, Filesystem, Kind, RealFilesystem, write_durably, write_fully
from forebay.testing.faulty_filesystem import FaultyFilesystem
from forebay.testing.simulated_disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Filesystem, Path]]:
    if request.param == "real":
        yield RealFilesystem(), tmp_path
        return
    disk = SimulatedDisk()
    disk.make_directory(Path("/base"))
    yield (disk if request.param == "simulated" else FaultyFilesystem(disk)), Path("/base")


def test_bytes_written_are_read_wherever_they_were_put(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    file = filesystem.open(base / "a", write=True, create=True)
    assert write_fully(file, [b"abc", b"", bytearray(b"def"), memoryview(b"xghi")[1:]], 0) == 9
    assert write_durably(file, [b"", b"Z"], 12) == 1
    assert file.read_at(100, 0) == b"abcdefghi\0\0\0Z"
    assert file.read_at(3, 3) == b"def"
    assert file.read_at(3, 50) == b""
    room = bytearray(b"-" * 8)
    assert file.read_into(memoryview(room)[2:6], 3) == 4
    assert room == b"--defg--"
    assert file.read_into(memoryview(room), 8) == 5
    assert room == b"i\0\0\0Zg--"
    assert file.read_into(memoryview(room), 50) == 0
    file.sync()
    assert file.size() == 13
    file.truncate(4)
    assert filesystem.open(base / "a").read_at(100, 0) == b"abcd"
    file.truncate(6)
    assert file.read_at(10, 0) == b"abcd\0\0"
    file.close()


def test_more_buffers_than_one_call_takes_are_all_written(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    file = filesystem.open(base / "a", write=True, create=True)
    assert write_fully(file, [b"%04d" % number for number in range(3000)], 0) == 12_000
    assert file.read_at(4, 4 * 2999) == b"2999"
    file.close()


def test_status_tells_what_is_there(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    filesystem.make_directory(base / "d")
    filesystem.make_directory(base / "d")
    filesystem.open(base / "d" / "f", create=True).close()
    assert filesystem.status(base / "d").kind is Kind.DIRECTORY
    assert filesystem.status(base / "d" / "f") == (Kind.FILE, 0)
    assert filesystem.status(base / "none").kind is Kind.ABSENT
    assert filesystem.status(base / "d" / "f" / "below").kind is Kind.ABSENT
    assert filesystem.list_directory(base / "d") == ["f"]
    filesystem.sync_directory(base / "d")


def test_names_can_be_replaced_and_removed(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    for name in ("a", "b"):
        file = filesystem.open(base / name, write=True, create=True)
        write_fully(file, [name.encode()], 0)
        file.close()
    filesystem.replace(base / "a", base / "b")
    assert filesystem.list_directory(base) == ["b"]
    assert filesystem.open(base / "b").read_at(9, 0) == b"a"
    filesystem.remove(base / "b")
    filesystem.make_directory(base / "d")
    filesystem.remove_directory(base / "d")
    assert filesystem.list_directory(base) == []


def test_an_open_file_outlives_its_name(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    file = filesystem.open(base / "a", write=True, create=True)
    write_fully(file, [b"still here"], 0)
    filesystem.remove(base / "a")
    assert file.read_at(100, 0) == b"still here"
    file.close()


def test_what_is_missing_is_an_error(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    with pytest.raises(FileNotFoundError):
        filesystem.open(base / "none")
    with pytest.raises(FileNotFoundError):
        filesystem.remove(base / "none")
    with pytest.raises(FileNotFoundError):
        filesystem.list_directory(base / "none")
    filesystem.make_directory(base / "d")
    filesystem.open(base / "d" / "f", create=True).close()
    with pytest.raises(OSError, match="not empty"):
        filesystem.remove_directory(base / "d")


def test_a_lock_has_one_owner_who_is_named(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    lock = filesystem.lock(base / "lock", "ada")
    assert filesystem.lock_owner(base / "lock") == "ada"
    with pytest.raises(AlreadyLocked, match="ada"):
        filesystem.lock(base / "lock", "grace")
    lock.release()
    assert filesystem.lock_owner(base / "lock") is None
    filesystem.lock(base / "lock", "grace").release()


def test_free_space_is_a_number(place: tuple[Filesystem, Path]) -> None:
    filesystem, base = place
    assert filesystem.free_bytes(base) > 0
