"""Executors have PySpark, PyArrow and msgspec: what is imported there asks for no other package."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_ON_EXECUTORS = ("pydantic", "yaml", "typer", "rich", "aiohttp", "psycopg", "uvloop", "httptools")
IMPORTED_THERE = (
    "forebay.flows.record_action",
    "forebay.spark.parcels.messages",
    "forebay.spark.parcels.staging",
    "forebay.spark.record_chain",
    "forebay.spark.record_frames",
    "forebay.spark.sink",
    "forebay.spark.source",
)


@pytest.mark.parametrize("module", IMPORTED_THERE)
def test_module_that_executors_import_needs_no_package_that_they_lack(module: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({NOT_ON_EXECUTORS!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
