"""Before a session starts: what is set for which master, what is shipped, and how a failed start is told."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from forebay.spark import JavaNotFound, masters, start_session
from forebay.spark.masters import SessionTarget, find_place
from forebay.spark.session import UNCHECKED_ARROW, prepare_environment, settings_for
from forebay.spark.shipping import package_zip


def test_session_is_in_utc_and_may_push_filters_on_every_master() -> None:
    for master in ("local[*]", "local", "spark://h:7077", "k8s://h", "yarn", "sc://h:15002"):
        settings = settings_for(SessionTarget(master, is_connect=master.startswith("sc:")))
        assert settings["spark.sql.session.timeZone"] == "UTC"
        assert settings["spark.sql.python.filterPushdown.enabled"] == "true"


def test_session_runs_where_the_program_says_or_where_it_already_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "session_there", lambda: None)
    given = {"SPARK_REMOTE": "sc://far:15002", "MASTER": "spark://h:7077"}
    assert find_place("yarn", given) == SessionTarget("yarn")
    assert find_place("sc://h", given) == SessionTarget("sc://h", is_connect=True)
    assert find_place(None, given) == SessionTarget("sc://far:15002", is_connect=True)
    assert find_place(None, {"MASTER": "spark://h:7077"}) == SessionTarget("spark://h:7077")
    assert find_place(None, {}) == SessionTarget("local[*]")


def test_only_a_local_session_has_few_shuffle_partitions() -> None:
    few = {
        master: settings_for(SessionTarget(master, is_connect=master.startswith("sc:"))).get(
            "spark.sql.shuffle.partitions"
        )
        for master in ("local[4]", "yarn", "sc://h")
    }
    assert few == {"local[4]": str(min(os.cpu_count() or 1, 16)), "yarn": None, "sc://h": None}


def test_checkpoint_manager_is_left_as_spark_has_it() -> None:
    assert not [name for name in settings_for(SessionTarget("local")) if "checkpointFileManager" in name]


def test_failed_start_is_told_to_whoever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(masters, "session_there", lambda: None)
    told: list[str] = []
    with pytest.raises(JavaNotFound, match="JAVA_HOME"):
        start_session("local[1]", on_progress=told.append).result(60)
    assert told == ["Spark: finding Java"]


def test_arrow_checks_nulls_and_checks_borders_only_if_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (borders,) = UNCHECKED_ARROW
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", borders):  # all that is set here is undone after the test
        monkeypatch.setenv(name, os.environ.get(name, ""))
        monkeypatch.delenv(name)
    prepare_environment("local[1]", None)
    assert os.environ[borders] == "true"
    assert "ARROW_ENABLE_NULL_CHECK_FOR_GET" not in os.environ
    monkeypatch.setenv(borders, "false")
    prepare_environment("local[1]", None)
    assert os.environ[borders] == "false"


def test_package_is_zipped_once_and_imports_from_the_zip(tmp_path: Path) -> None:
    made = package_zip(tmp_path)
    stamp = made.stat().st_mtime_ns
    assert package_zip(tmp_path) == made
    assert made.stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None
    program = "import forebay.spark.source as source; print(source.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(made)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{made}/forebay/spark/")


def test_source_and_sink_load_nothing_that_an_executor_lacks() -> None:
    program = "import sys, forebay.spark.source; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "msgspec", "pydantic", "psycopg", "uvicorn", "yaml", "cramjam"} & set(done.stdout.split())
