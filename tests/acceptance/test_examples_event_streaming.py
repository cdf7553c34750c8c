"""The examples of event streaming, run as their pages say; one of them while PostgreSQL is stopped and started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "event-streaming"
SECONDS_MAX = 120.0


def ran(name: str, server: RunningServer, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--server", server.url, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_buffered_metrics_take_few_writes(server: RunningServer) -> None:
    accepted, stored = ran("buffered_metrics.py", server, "--machines", "10", "--count", "100")
    assert accepted.startswith("accepted 1000 metrics in ")
    found = re.fullmatch(r"stored 1000 metrics with (\d+) writes to the store, in queue (\S+)", stored)
    assert found is not None, stored
    assert int(found[1]) <= 100
    http = Http(server.url)
    messages = http.get(f"/api/v1/messages?queue={found[2]}&limit=10000").json["messages"]
    http.close()
    by_machine: dict[str, list[int]] = {}
    for message in messages:
        by_machine.setdefault(message["partition"], []).append(message["data"]["number"])
    assert by_machine == {f"machine-{n}": list(range(100)) for n in range(10)}


def test_each_group_gets_every_event_and_failed_alerts_are_sent_in_their_turn(server: RunningServer) -> None:
    got, alerts = ran("several_groups.py", server, "--count", "150")
    assert got == "dashboard got 150, analytics 150, alerts 150 of 150 events"
    assert alerts.endswith("in order: True; failed 1 time")


def test_outage_of_postgres_loses_no_task(postgres_server: PostgresServer, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with RunningServer(tmp_path / "data", store=postgres_server.url) as server, printed.open("w") as lines:
        example = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "through_an_outage.py"), "--server", server.url, "--seconds", "12"],
            stdout=lines,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")},
        )
        try:
            wait_until(lambda: "task 0 is queued" in printed.read_text())
            postgres_server.stop("immediate")
            wait_until(lambda: "is buffered, receipt buffer" in printed.read_text())
            postgres_server.start()
            code = example.wait(SECONDS_MAX)
        finally:
            if example.poll() is None:
                example.kill()
                example.wait()
    told = printed.read_text()
    assert code == 0, told
    *_, pushed, found = told.splitlines()
    assert "is queued, receipt postgres" in told.split("is buffered")[-1], told
    answers = {status: int(count) for count, status in re.findall(r"(\d+) (queued|buffered)", pushed)}
    assert answers["buffered"] > 0
    assert found == f"found {sum(answers.values())}: 0 missing, 0 twice, in order: True"


def test_example_ends_with_1_when_something_is_missing(server: RunningServer, tmp_path: Path) -> None:
    """The outage's example, made to believe that it pushed one task more than it did."""
    source = (EXAMPLES / "through_an_outage.py").read_text()
    assert "list(range(producer.answers.total()))" in source
    broken = tmp_path / "broken.py"
    broken.write_text(source.replace("range(producer.answers.total())", "range(producer.answers.total() + 1)"))
    command = [sys.executable, str(broken), "--server", server.url, "--seconds", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert (done.returncode, "1 missing" in done.stdout) == (1, True)
