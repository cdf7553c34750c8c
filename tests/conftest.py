"""How tests run here: fixtures come as small plugins, and Hypothesis looks harder when told to.

Servers start when the first test asks for one, so a run of unit tests starts none. Hypothesis tries the same examples
in every run, so that a run fails for what was changed and nothing else; `--hypothesis-profile=new`, as `make
test-nightly` and `make test-stress` say, tries others, and `FOREBAY_TEST_THOROUGH=1` ten times as many of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "fixtures.fix_postgres",
    "fixtures.fix_valkey",
    "fixtures.fix_chromium",
    "fixtures.fix_prometheus",
    "fixtures.fix_ordinary_user",
    "fixtures.fix_warm_parent",
    "forebay.testing.running_server",  # as those do who test against a server of ours
]

# A machine under load is no reason to fail, hence no deadline.
settings.register_profile("default", derandomize=True, print_blob=True, deadline=None, max_examples=100)
# A failure prints the blob that reproduces it.
settings.register_profile("new", settings.get_profile("default"), derandomize=False)
settings.register_profile("thorough", settings.get_profile("new"), max_examples=1000, stateful_step_count=100)
settings.load_profile("thorough" if os.environ.get("FOREBAY_TEST_THOROUGH") == "1" else "default")

os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "data" / "spark-conf"))

STARTS_PROCESSES = ("acceptance", "integration", "migration")
"""Folders whose tests start servers or programs: together they take minutes."""

LONGEST_FIRST = (
    "test_spark_masters",
    "test_cli_flows",
    "test_outages",
    "test_cli_bench_spark",
    "test_flows",
    "test_examples",
    "test_examples_parcels",
    "test_cli_log",
    "test_cli_buffers",
    "test_killed_at_points",
    "test_cli_bench_broker",
    "test_driver_killed",
    "test_crash_states",
    "test_cli_demo",
    "test_faults",
    "test_http_server",
    "test_qos0",
    "test_commit_kill",
    "test_operation_crashes",
    "test_schemathesis",
    "test_page_up",
    "test_prometheus_journeys",
    "test_page",
    "test_cli_audit",
    "test_cli_bench_ingest",
)
"""Files that take minutes: a worker that begins one of them last lets the others wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts processes is slow, so that `make test-fast` stays a matter of few minutes; the longest go first."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in STARTS_PROCESSES:
            item.add_marker(pytest.mark.slow)
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
