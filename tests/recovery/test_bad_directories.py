"""Directories that are not what they should be: a clear error that names path and remedy, and nothing touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.logs import content, numbered
from forebay.commitlog import CommitLog
from forebay.commitlog.inspection import inspect, verify
from forebay.commitlog.salvage import salvage
from forebay.errors import (
    AppendFailed,
    LogLocked,
    LogNotAccessible,
    LogUnopenable,
    ManifestCorrupted,
    ManifestNotFound,
    SegmentMissing,
)
from forebay.filesystem import RealFilesystem

NOBODY = 65534


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A closed log with one sealed segment and an active one."""
    path = tmp_path / "log"
    with CommitLog.open(path) as log:
        log.append(numbered(1, 3))
        log.roll()
        log.append(numbered(4, 2))
    return path


@contextmanager
def unprivileged(path: Path) -> Iterator[None]:
    """As an ordinary user: root may do anything, so a test of permissions steps down from it."""
    if os.geteuid() != 0:
        yield
        return
    for parent in path.parents:
        if parent.stat().st_uid == 0 and parent.is_relative_to("/tmp"):
            parent.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def active(base: Path) -> Path:
    return max(base.rglob("*.data"))


def test_a_second_opener_is_refused_and_told_who_has_the_log(base: Path) -> None:
    with CommitLog.open(base) as log:
        with pytest.raises(LogLocked, match=rf"open in process {os.getpid()} \(.*\) on .* since .*Stop that process"):
            CommitLog.open(base)
        with pytest.raises(LogLocked):
            salvage(RealFilesystem(), base)
        assert log.append(numbered(6, 1)) == (6, 6)
        assert inspect(RealFilesystem(), base).owner is not None
        assert verify(RealFilesystem(), base).is_good
    assert inspect(RealFilesystem(), base).owner is None


def test_a_lock_left_by_a_dead_process_is_taken_over(base: Path) -> None:
    (base / "lock").write_text("process 1 (init) on elsewhere since 1970-01-01")
    with CommitLog.open(base) as log:
        assert len(content(log)) == 5


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not a directory")
    with pytest.raises(LogNotAccessible, match="Not a directory"):
        CommitLog.open(tmp_path / "log")


def test_segments_without_a_manifest_are_never_a_fresh_log(base: Path) -> None:
    for name in ("manifest.1", "manifest.2", "manifest.current"):
        (base / name).unlink()
    with pytest.raises(ManifestNotFound, match=r"manifest not found, although .*\.data holds \d+ bytes"):
        CommitLog.open(base)


@pytest.mark.parametrize("name", ["manifest.1", "manifest.2", "manifest.current"])
def test_a_link_in_place_of_a_manifest_is_not_followed(base: Path, tmp_path: Path, name: str) -> None:
    if name != "manifest.current":
        name = f"manifest.{(base / 'manifest.current').read_bytes()[0]}"
    elsewhere = tmp_path / "elsewhere"
    shutil.move(base / name, elsewhere)
    (base / name).symlink_to(elsewhere)
    with pytest.raises(ManifestCorrupted, match="is a symbolic link, not a file"):
        CommitLog.open(base)


def test_a_link_in_place_of_the_active_segment_is_not_followed(base: Path, tmp_path: Path) -> None:
    path = active(base)
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SegmentMissing, match="is a symbolic link, not a file"):
        CommitLog.open(base)


def test_a_link_in_place_of_a_sealed_segment_is_not_followed(base: Path, tmp_path: Path) -> None:
    path = min(base.rglob("*.data"))
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with CommitLog.open(base) as log, pytest.raises(SegmentMissing, match="cannot open the segment"):
        list(log.read(1))


def test_a_missing_active_segment_is_named(base: Path) -> None:
    active(base).unlink()
    with pytest.raises(SegmentMissing, match=r"the manifest knows 2 messages in it.*Put the file back"):
        CommitLog.open(base)


def test_foreign_files_are_left_alone_and_listed(base: Path) -> None:
    day = active(base).parent
    foreign = [base / "notes.txt", base / "2026x", day / "README", day / "0001.data", base / os.fsdecode(b"caf\xe9")]
    for path in foreign:
        path.write_text("somebody else's")
    (base / "subdirectory").mkdir()
    with CommitLog.open(base) as log:
        assert len(content(log)) == 5
        log.truncate_before(10**9)
    assert all(path.read_text() == "somebody else's" for path in foreign)
    listed = inspect(RealFilesystem(), base).foreign
    assert {path.relative_to(base).as_posix() for path in foreign} | {"subdirectory"} == set(listed)


def test_a_directory_whose_name_is_not_utf8_works(tmp_path: Path) -> None:
    base = tmp_path / os.fsdecode(b"na\xefve \xff")
    with CommitLog.open(base) as log:
        log.append(numbered(1, 2))
    with CommitLog.open(base) as log:
        assert len(content(log)) == 2


def test_a_directory_that_may_not_be_written_is_named(base: Path) -> None:
    for path in [base, *base.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    with (
        unprivileged(base),
        pytest.raises(LogNotAccessible, match=r"Permission denied.*must be able to read and write"),
    ):
        CommitLog.open(base)
    with unprivileged(base):
        assert verify(RealFilesystem(), base).is_good, "looking needs no permission to write"
        assert inspect(RealFilesystem(), base).next_seq == 6
    assert before == {path: path.stat().st_mtime_ns for path in base.rglob("*")}


def test_a_directory_that_may_not_be_read_is_named(base: Path) -> None:
    base.chmod(0o000)
    with unprivileged(base), pytest.raises(LogNotAccessible, match="Permission denied"):
        CommitLog.open(base)
    base.chmod(0o755)


def test_a_parent_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with unprivileged(tmp_path / "new"), pytest.raises(LogNotAccessible, match="Permission denied"):
        CommitLog.open(tmp_path / "new" / "log")
    tmp_path.chmod(0o755)


def test_a_file_where_a_new_segment_goes_is_not_overwritten(base: Path) -> None:
    with CommitLog.open(base) as log:
        path = active(base).with_name(f"{log.next_seq:016x}.data")
        path.write_text("in the way")
        with pytest.raises(AppendFailed, match=r"a file of 10 bytes stands where a new segment goes.*Move it"):
            log.roll()
        assert path.read_text() == "in the way"
        path.unlink()
        log.roll()
        assert log.append(numbered(6, 1)) == (6, 6)


def test_looking_at_what_is_no_log_says_so(tmp_path: Path) -> None:
    for look in (inspect, verify, salvage):
        with pytest.raises(LogUnopenable, match="no commit log is here"):
            look(RealFilesystem(), tmp_path)
        with pytest.raises(LogUnopenable, match="no such directory"):
            look(RealFilesystem(), tmp_path / "none")
    assert not list(tmp_path.iterdir())
