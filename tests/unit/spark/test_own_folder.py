"""Code is run from folders of one's own only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from forebay.spark.launchers import cache_folder, written_script
from forebay.spark.own_folder import is_own, own_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir(mode=0o777)
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_user_without_a_home_has_a_folder_that_no_other_user_writes_to(temporary: Path) -> None:
    folder = cache_folder({})
    assert folder == temporary / f"forebay-{os.getuid()}"
    script = written_script("#!/bin/sh\n", folder, "java", "bin/java")
    assert script.is_relative_to(folder)
    assert all(is_own(path) for path in (folder, script.parent.parent, script.parent, script))


def test_folder_that_is_a_link_is_not_used(temporary: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (temporary / "forebay").symlink_to(planted)
    found = own_folder(temporary / "forebay")
    assert found != temporary / "forebay"
    assert is_own(found)
    assert not list(planted.iterdir())


def test_folder_of_another_user_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = temporary / "forebay"
    planted.mkdir(mode=0o755)
    monkeypatch.setattr(os, "getuid", lambda: planted.stat().st_uid + 1)
    assert own_folder(planted) != planted


def test_script_that_another_user_may_have_written_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    script = written_script("#!/bin/sh\necho own\n", folder, "python", "python")
    script.chmod(0o777)
    script.write_text("#!/bin/sh\necho planted\n")
    again = written_script("#!/bin/sh\necho own\n", folder, "python", "python")
    assert (again, again.read_text()) == (script, "#!/bin/sh\necho own\n")
    assert is_own(again)


def test_own_folder_that_others_could_write_to_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    assert own_folder(folder) == folder
    assert is_own(folder)
