"""Every example, run as its page says; what comes out is what plain Python makes of the same messages."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues, forget_last_commit
from fixtures.waiting import wait_until
from forebay.spark import register
from forebay.testing.running_server import RunningServer

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SECONDS_MAX = 240.0
REGIONS = {"ann": "eu", "bob": "us", "eve": "eu"}
MINUTE_REGIONS = 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "server") as running:
        yield running


@pytest.fixture
def spark_of_server(spark: SparkSession, server: RunningServer) -> Iterator[SparkSession]:
    """The shared session, with this test's server as the one that queries use."""
    spark.conf.set("spark.forebay.url", server.url)
    register(spark)
    yield spark
    spark.conf.unset("spark.forebay.url")
    register(spark)


def environ() -> dict[str, str]:
    """The environment of a person who has activated the virtual environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return {**own, "PATH": path}


def ran(*command: str, folder: Path, url: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environ(), "FOREBAY_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(queues: Queues, queue: str) -> list[Any]:
    return [json.loads(payload) for payload in queues.payloads(queue)]


def test_clicks_are_counted_per_minute_and_region(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    command = [sys.executable, "-m", "forebay", "up", "-c", str(EXAMPLES / "clicks" / "forebay.yaml")]
    with printed.open("w") as lines:
        up = subprocess.Popen(
            [*command, "--server-port", "0", "--data-dir", str(tmp_path / "data")],
            cwd=tmp_path,
            env=environ(),
            stdout=lines,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "forebay: serving " in printed.read_text() or up.poll() is not None, SECONDS_MAX)
        assert up.poll() is None, printed.read_text()
        server = RunningServer(tmp_path / "unused")
        server.url = printed.read_text().split("forebay: serving ")[1].split(" ")[0]
        queues = Queues(server)
        ran("sh", str(EXAMPLES / "clicks" / "push-clicks.sh"), folder=tmp_path, url=server.url)
        wait_until(lambda: queues.size("clicks-per-minute") >= MINUTE_REGIONS, SECONDS_MAX)
        wait_until(lambda: queues.size("clicks-unreadable"), SECONDS_MAX)
        pushed = documents(queues, "clicks")
        counted = documents(queues, "clicks-per-minute")
        found = {(datetime.fromisoformat(row["minute"]), row["region"]): (row["clicks"], row["ms"]) for row in counted}
        assert len(counted) == len(found)
        assert found == per_minute(pushed)
        assert documents(queues, "clicks-unreadable") == ["not a click"]
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(SECONDS_MAX)
    assert code == 0, printed.read_text()


def per_minute(pushed: list[Any]) -> dict[tuple[datetime, str], tuple[int, float]]:
    """Of all clicks but the last one, which is in a minute that is still open."""
    found: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for click in pushed[:-1]:
        if isinstance(click, dict):
            minute = datetime.fromisoformat(click["at"]).replace(second=0)
            found[minute, REGIONS[click["user"]]].append(click["ms"])
    return {key: (len(ms), sum(ms) / len(ms)) for key, ms in found.items()}


def test_large_orders_are_copied_once_also_when_the_last_batch_is_repeated(
    server: RunningServer, spark_of_server: SparkSession, tmp_path: Path
) -> None:
    queues = Queues(server)
    script = EXAMPLES / "exactly_once.py"
    orders = [{"id": n, "total": n * 7 % 200 + 0.5} for n in range(300)]
    large = [order for order in orders if order["total"] > 100]
    queues.put("orders", {"payload": [json.dumps(order).encode() for order in orders[:200]]})
    ran(sys.executable, str(script), folder=tmp_path, url=server.url)
    assert documents(queues, "large-orders") == [order for order in large if order["id"] < 200]
    checkpoint = tmp_path / "checkpoint-large-orders"
    forget_last_commit(checkpoint)
    queues.put("orders", {"payload": [b"no JSON", *(json.dumps(order).encode() for order in orders[200:])]})
    # A second driver on the same checkpoint: the session of these tests, which is there already.
    runpy.run_path(str(script))["copy_large_orders"](spark_of_server, str(checkpoint))
    assert sorted(documents(queues, "large-orders"), key=lambda order: order["id"]) == large
    assert queues.lag("large-orders", "orders") == 0


def test_queue_is_read_into_pandas_and_duckdb(server: RunningServer, tmp_path: Path) -> None:
    orders = [("berlin", 250.0), ("oslo", 40.5), ("berlin", 1.25)]
    payloads = [json.dumps({"id": n, "total": total}).encode() for n, (_, total) in enumerate(orders)]
    Queues(server).put("orders", {"payload": payloads, "partition": [partition for partition, _ in orders]})
    printed = ran(sys.executable, str(EXAMPLES / "read_queue.py"), folder=tmp_path, url=server.url).splitlines()
    assert printed[0].startswith("3 orders, ")
    assert [line.split() for line in printed[1:-2]] == [["partition"], ["berlin", "251.25"], ["oslo", "40.50"]]
    assert printed[-2:] == ["berlin 2 251.25", "oslo 1 40.5"]


def test_readme_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    names = {entry.name for entry in EXAMPLES.iterdir()} - {"README.md"}
    assert {name for name in names if f"]({name}" not in page} == set()
