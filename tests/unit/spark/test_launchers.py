"""The script before Python: Spark's zips and jars are dropped from the way to modules, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from forebay.spark.launchers import local_python

SPARK = Path(pyspark.__file__).parent
ZIP = SPARK / "python" / "lib" / "pyspark.zip"


def told_by(python: str, path: str) -> list[str]:
    program = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1:], sep='\\n')"
    command = [python, "-S", "-c", program, "a b", "*"]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_python_of_local_workers_is_this_one_without_the_zips(tmp_path: Path) -> None:
    python = local_python({"XDG_CACHE_HOME": str(tmp_path)})
    assert Path(python).is_relative_to(tmp_path)
    zips = f"{ZIP}:{SPARK}/python/lib/py4j-0.10-src.zip:{SPARK}/jars/spark-core.jar"
    path = f"/my own:{zips}:/opt/other/pyspark.zip:/*"
    assert told_by(python, path) == [sys.executable, "/my own:/opt/other/pyspark.zip:/*", "['a b', '*']"]
    assert told_by(python, str(ZIP))[1] == ""


def test_script_is_written_once(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    first = Path(local_python(environ)).stat()
    assert Path(local_python(environ)).stat().st_ino == first.st_ino


def test_without_a_cache_python_itself_serves(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert local_python({"XDG_CACHE_HOME": str(tmp_path / "file")}) == sys.executable


def test_what_is_compiled_is_kept_with_the_script_where_it_may_not_stand_beside_the_code(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "imported.py").write_text("number = 1\n")
    python = local_python({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code"), "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPYCACHEPREFIX", None)
    subprocess.run([python, "-S", "-c", "import imported"], env=environ, check=True)
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["imported.py"]
    assert list((tmp_path / "cache" / "forebay" / "compiled").rglob("imported.*.pyc"))


def test_who_lets_python_write_beside_the_code_is_left_alone(tmp_path: Path) -> None:
    python = local_python({"XDG_CACHE_HOME": str(tmp_path)})
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = "import os; print(os.environ.get('PYTHONPYCACHEPREFIX'))"
    told = subprocess.run([python, "-S", "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "None"
