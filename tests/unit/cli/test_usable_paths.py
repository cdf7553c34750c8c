"""What the operating system refuses, in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from forebay.cli.usable_paths import as_unusable, writable_directory
from forebay.errors import PathUnusable


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EDQUOT])
def test_the_user_who_may_not_is_named(number: int) -> None:
    known = as_unusable(OSError(number, os.strerror(number), "/srv/data"))
    assert known is not None
    assert known.message == f"/srv/data: {os.strerror(number)}"
    assert f"user {os.geteuid()}" in str(known.remedy)


def test_what_is_about_no_path_is_not_taken_for_one() -> None:
    assert as_unusable(OSError(errno.EACCES, "Permission denied")) is None
    assert as_unusable(ConnectionResetError(errno.ECONNRESET, "reset", "/srv/data")) is None
    assert as_unusable(OSError("something else")) is None


def test_a_directory_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    writable_directory(tmp_path / "a" / "b", "data_dir")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathUnusable, match="data_dir"):
        writable_directory(tmp_path / "file", "data_dir")
