"""The example of a metrics proxy, run as its page says, with Prometheus stopped in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PrometheusServer
from forebay.testing.servers.machine import free_port

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "metrics-proxy"
SECONDS = 6


def test_no_second_is_missing_though_prometheus_was_stopped(prometheus: PrometheusServer, tmp_path: Path) -> None:
    ports = {"4318": str(free_port()), "4317": str(free_port()), "9090": str(prometheus.port)}
    text = (EXAMPLE / "forebay.yaml").read_text()
    for port, free in ports.items():
        assert f":{port}" in text
        text = text.replace(f":{port}", f":{free}")
    settings = tmp_path / "forebay.yaml"
    settings.write_text(text)
    printed = tmp_path / "printed"
    words = ["--endpoint", f"http://127.0.0.1:{ports['4318']}", "--seconds", str(SECONDS)]
    with RunningServer(tmp_path / "data", arguments=["-c", str(settings)]), printed.open("w") as lines:
        command = [sys.executable, str(EXAMPLE / "push_metrics.py"), *words]
        example = subprocess.Popen(command, stdout=lines, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: "2 orders pushed" in printed.read_text())
            prometheus.stop()
            wait_until(lambda: "4 orders pushed" in printed.read_text())
            prometheus.start()
            assert example.wait(60) == 0, printed.read_text()
        finally:
            if example.poll() is None:
                example.kill()
                example.wait()
        wait_until(lambda: len(orders(prometheus)) == SECONDS)
    assert orders(prometheus) == [float(number + 1) for number in range(SECONDS)]


def orders(prometheus: PrometheusServer) -> list[float]:
    found = prometheus.samples("orders_total")
    assert all(json.loads(labels)["job"] == "shop" for labels in found)
    return [value for of in found.values() for _, value in of]


def test_durable_way_of_the_page_is_one_that_the_settings_know(tmp_path: Path) -> None:
    page = (EXAMPLE / "README.md").read_text()
    shown = yaml.safe_load(page.rpartition("```yaml\n")[2].partition("```")[0])
    whole = yaml.safe_load((EXAMPLE / "forebay.yaml").read_text()) | shown
    shown["receivers"]["otlp_http"]["listen"] = f"127.0.0.1:{free_port()}"
    settings = tmp_path / "forebay.yaml"
    settings.write_text(yaml.safe_dump(whole))
    with RunningServer(tmp_path / "data", arguments=["-c", str(settings)]) as server:
        assert server.url
