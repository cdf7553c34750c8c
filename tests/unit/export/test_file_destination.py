"""A file as a destination: whole lines, whatever a crash or somebody else did to the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.clock import SystemClock
from forebay.export.batch import ExportMessage, MessageBatch
from forebay.export.destinations.file import FileDestination
from forebay.filesystem import RealFilesystem

CLOCK = SystemClock()


def destination(path: Path, size_max: int = 1 << 20) -> FileDestination:
    return FileDestination("lines", path, RealFilesystem(), CLOCK, size_max=size_max)


async def write(to: FileDestination, *texts: str) -> None:
    messages = [ExportMessage("q", "p", n, f"t{n}", 1, f'"{text}"'.encode()) for n, text in enumerate(texts)]
    await to.send(to.prepare(MessageBatch(messages, 1, "key")))


def lines(path: Path) -> list[str]:
    return [line.strip('"') for line in path.read_text().splitlines()]


async def test_torn_line_of_a_crash_is_ended_so_that_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('"one"\n"tw')
    to = destination(path)
    await write(to, "three")
    assert path.read_text() == '"one"\n"tw\n"three"\n'
    await to.close()


async def test_full_file_is_renamed_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    to = destination(path, size_max=20)
    for number in range(6):
        await write(to, f"line {number}")
    older = sorted(tmp_path.glob("lines.*"))
    assert [line for file in [*older, path] for line in lines(file)] == [f"line {number}" for number in range(6)]
    assert len(older) == 2
    assert all(file.stat().st_size <= 20 for file in [*older, path])
    await to.close()


def remove(path: Path) -> list[str]:
    path.unlink()
    return []


def rename(path: Path) -> list[str]:
    path.rename(path.with_name("rotated"))
    return []


def cut(path: Path) -> list[str]:
    os.truncate(path, 0)  # logrotate's copytruncate
    return []


def cut_within_a_line(path: Path) -> list[str]:
    os.truncate(path, 8)
    return ["one", "t"]


def add(path: Path) -> list[str]:
    with path.open("a") as file:
        file.write("theirs\n")
    return ["one", "two", "theirs"]


@pytest.mark.parametrize("disturb", [remove, rename, cut, cut_within_a_line, add])
async def test_line_is_never_written_to_where_nobody_reads_it(
    disturb: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    to = destination(path)
    await write(to, "one", "two")
    before = disturb(path)
    await write(to, "three")
    assert lines(path) == [*before, "three"]
    await to.close()
