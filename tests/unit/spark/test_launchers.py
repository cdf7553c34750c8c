"""The script before Python: Spark's zip is dropped from the way to modules, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from forebay.spark.launchers import local_python

ZIP = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"


def told_by(python: str, path: str) -> list[str]:
    program = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:], sep='\\n')"
    command = [python, "-S", "-c", program, "a b", "*"]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_python_of_local_workers_is_this_one_without_the_zip(tmp_path: Path) -> None:
    python = local_python({"XDG_CACHE_HOME": str(tmp_path)})
    assert Path(python).is_relative_to(tmp_path)
    path = f"/my own:{ZIP}:/opt/other/pyspark.zip:/*"
    assert told_by(python, path) == [sys.executable, "/my own:/opt/other/pyspark.zip:/*", "['a b', '*']"]
    assert told_by(python, str(ZIP))[1] == ""


def test_script_is_written_once(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    first = Path(local_python(environ)).stat()
    assert Path(local_python(environ)).stat().st_ino == first.st_ino


def test_without_a_cache_python_itself_serves(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert local_python({"XDG_CACHE_HOME": str(tmp_path / "file")}) == sys.executable
