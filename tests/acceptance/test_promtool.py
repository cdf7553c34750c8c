"""What Prometheus' own tool says of our rules and of a real server's page; and rules that fire when they should."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from pathlib import Path

import yaml

from fixtures.running_stores import Http
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import promtool_binary
from unit.telemetry.test_deploy import ALERTS

SETTINGS = """
destinations:
  - {name: lines, type: file, path: "FOLDER/lines.ndjson", queue: {enabled: true}}
  - {name: away, type: otlp_http, url: "http://127.0.0.1:9"}
exports:
  - {name: lines, from: orders@lines, to: lines}
receivers:
  otlp_http: {listen: "127.0.0.1:0", to: "destination:away"}
telemetry:
  namespace: NAMESPACE
  traces: {endpoint: "http://127.0.0.1:9/v1/traces"}
"""


def promtool(*words: str, page: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([promtool_binary(), *words], input=page, capture_output=True, check=False, timeout=60)


def test_the_rules_are_clean() -> None:
    checked = promtool("check", "rules", str(ALERTS))
    assert checked.returncode == 0, checked.stdout + checked.stderr


SERIES = {
    "ForebayDown": ('up{job="forebay", instance="a"}', "0x20"),
    "ForebayStoreAway": ('forebay_db_healthy{instance="a"}', "0x20"),
    "ForebayMessagesLost": ('forebay_messages_lost{instance="a", queue="q"}', "3x20"),
    "ForebayLedgerUnbalanced": ('forebay_ledger_accounts_unbalanced{instance="a"}', "1x20"),
    "ForebayGroupBehind": ('forebay_group_lag_seconds{instance="a", queue="q", group="g"}', "700x20"),
    "ForebayDeadLetters": ('forebay_queue_dead_letters{instance="a", queue="q"}', "0+1x20"),
    "ForebayParcelsInError": ('forebay_parcels{instance="a", state="ERROR"}', "2x20"),
    "ForebayDestinationAway": ('forebay_circuit_breaker_state{instance="a", destination="d", state="open"}', "1x20"),
    "ForebayExportLoss": ('forebay_queue_dropped_total{instance="a", destination="d", reason="oldest"}', "0+1x20"),
    "ForebayPushSlow": ('forebay_push_seconds_bucket{instance="a", le="10"}', "0+5x20"),
}


def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    tests = []
    for alert, (series, values) in SERIES.items():
        inputs = [{"series": series, "values": values}]
        if alert == "ForebayPushSlow":
            inputs += [
                {"series": 'forebay_push_seconds_bucket{instance="a", le="2.5"}', "values": "0x20"},
                {"series": 'forebay_push_seconds_bucket{instance="a", le="+Inf"}', "values": "0+5x20"},
            ]
        firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        tests.append(
            {
                "interval": "1m",
                "input_series": inputs,
                "promql_expr_test": [
                    {"expr": firing, "eval_time": "19m", "exp_samples": [{"labels": "{}", "value": 1}]},
                    {"expr": firing, "eval_time": "0m", "exp_samples": _at_once(alert)},
                ],
            }
        )
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def _at_once(alert: str) -> list[dict[str, object]]:
    return [{"labels": "{}", "value": 1}] if alert == "ForebayMessagesLost" else []


def checked_page(tmp_path: Path, namespace: str) -> bytes:
    file = tmp_path / "forebay.yaml"
    file.write_text(SETTINGS.replace("FOLDER", str(tmp_path)).replace("NAMESPACE", namespace))
    with RunningServer(tmp_path / "data", arguments=("-c", str(file))) as running, closing(Http(running.url)) as http:
        http.push("orders", 1, 2, 3)
        http.push('odd "name"\\', 1)
        for message in http.pop("orders", batch=2):
            http.ack(message, "dlq", error="no")
        page = http.get("/metrics").body
    checked = promtool("check", "metrics", page=page)
    complaints = [line for line in (checked.stdout + checked.stderr).decode().splitlines() if line.strip()]
    assert [line for line in complaints if not _is_of_the_seeds(line)] == []
    return page


OF_THE_SEEDS = ("fastqueue_chunk_rotations", "fastqueue_inmemory_flushes", "queue_workers_total",
                "queue_preparers_total", "queue_senders_total")  # fmt: skip
"""Names that dashboards of metrics-governor know; the rules for names would have them otherwise."""


def test_names_that_are_not_as_the_rules_want_them_are_told_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "monitoring.md").read_text()
    told = guide.partition("**Names** follow")[2].partition("\n\n")[0]
    assert set(re.findall(r"`((?:queue|fastqueue)_\w+)`", told)) == set(OF_THE_SEEDS)


def _is_of_the_seeds(complaint: str) -> bool:
    return complaint.split(" ")[0].removeprefix("forebay_").removeprefix("metrics_governor_") in OF_THE_SEEDS


def test_a_real_page_is_clean(tmp_path: Path) -> None:
    page = checked_page(tmp_path, "forebay")
    assert b'forebay_queue_size{destination="away"}' in page
    assert b'forebay_queue_messages{queue="odd \\"name\\"\\\\"} 1' in page


def test_a_page_with_the_names_of_metrics_governor_is_clean(tmp_path: Path) -> None:
    page = checked_page(tmp_path, "metrics_governor")
    assert b'metrics_governor_queue_size{destination="away"}' in page
    assert b"forebay_messages_pushed_total" in page
