"""The examples of flows on parcels, run as their pages say, with `forebay up`, Prometheus and a warehouse."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixtures.fix_spark import Queues
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PrometheusServer
from forebay.testing.servers.machine import free_port

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SECONDS_MAX = 240.0
PUSHED_SECONDS = 4
CITIES = {1: "berlin", 2: "oslo", 3: "boston", 4: None}
SHOPS = (("de", "eu"), ("no", "eu"), ("us", "us"))


def environ(**more: str) -> dict[str, str]:
    """The environment of a person who has activated the virtual environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**own, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}", **more}


def copied(example: str, folder: Path, ports: dict[str, int]) -> Path:
    """The example in a folder of its own, with other ports in its settings; returns those."""
    shutil.copytree(EXAMPLES / example, folder)
    settings = folder / "forebay.yaml"
    text = settings.read_text()
    for port, free in ports.items():
        assert f":{port}" in text
        text = text.replace(f":{port}", f":{free}")
    settings.write_text(text)
    return settings


@contextlib.contextmanager
def up(settings: Path, *words: str) -> Iterator[RunningServer]:
    """`forebay up` on these settings, once its server answers."""
    folder = settings.parent
    printed = folder / "printed"
    command = [sys.executable, "-m", "forebay", "up", "-c", str(settings), "--server-port", "0", *words]
    with printed.open("w") as lines:
        process = subprocess.Popen(command, cwd=folder, env=environ(), stdout=lines, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "forebay: serving " in printed.read_text() or process.poll() is not None, SECONDS_MAX)
        assert process.poll() is None, printed.read_text()
        server = RunningServer(folder / "unused")
        server.url = printed.read_text().split("forebay: serving ")[1].split(" ")[0]
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(SECONDS_MAX)
    assert code == 0, printed.read_text()


def states(queues: Queues, flow: str) -> set[str]:
    return {one["state"] for one in queues.ask("GET", f"/api/v1/parcels?flow={flow}&limit=1000")["parcels"]}


def documents(queues: Queues, queue: str) -> list[Any]:
    return [json.loads(payload) for payload in queues.payloads(queue)]


def test_fewer_series_reach_prometheus_with_the_sums_over_the_pods(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    settings = copied("metrics-governor", tmp_path / "example", {"9090": prometheus.port})
    receiver = f"127.0.0.1:{free_port()}"
    with up(settings, "--receivers-otlp-http-listen", receiver) as server:
        queues = Queues(server)
        script = settings.parent / "push_metrics.py"
        words = ["--endpoint", f"http://{receiver}", "--seconds", str(PUSHED_SECONDS)]
        subprocess.run([sys.executable, str(script), *words], check=True, capture_output=True, timeout=SECONDS_MAX)

        def orders() -> dict[str, list[float]]:
            found = prometheus.samples("orders_total")
            return {labels: [value for _, value in samples] for labels, samples in found.items()}

        wait_until(lambda: sum(map(len, orders().values())) >= 2 * PUSHED_SECONDS, SECONDS_MAX)
        wait_until(lambda: states(queues, "governor") == {"COMPLETE"}, SECONDS_MAX)
        found = {json.loads(labels)["route"]: values for labels, values in orders().items()}
        assert found == {route: [3.0 * n for n in range(1, PUSHED_SECONDS + 1)] for route in ("/cart", "/checkout")}
        assert all("pod" not in json.loads(labels) for labels in orders())
        assert prometheus.samples('{__name__=~"debug.*"}') == {}
        assert queues.size("governor.errors") == 0


def test_clicks_are_enriched_and_reach_the_warehouse_once(tmp_path: Path) -> None:
    port = free_port()
    settings = copied("enrichment", tmp_path / "example", {"8080": port})
    folder = settings.parent
    taken = folder / "taken"
    with up(settings) as server:
        queues = Queues(server)
        push = ["sh", str(folder / "push-clicks.sh")]
        subprocess.run(push, env=environ(FOREBAY_URL=server.url), check=True, capture_output=True, timeout=SECONDS_MAX)
        # The warehouse is not there yet: the clicks are in its outbox, and their parcels wait for it.
        wait_until(lambda: queues.size(".export.warehouse") == 300, SECONDS_MAX)
        assert states(queues, "enrichment") == {"IN_FLIGHT"}
        with taken.open("w") as lines:
            command = [sys.executable, str(folder / "warehouse.py"), "--port", str(port)]
            warehouse = subprocess.Popen(command, stdout=lines)
        try:
            wait_until(lambda: states(queues, "enrichment") == {"COMPLETE"}, SECONDS_MAX)
        finally:
            warehouse.kill()
            warehouse.wait()
        assert sorted(documents(queues, "enrichment.errors"), key=str) == [
            "not a click",
            {"user": "ann", "page": "/fr/cart", "ip": "10.1.0.1"},
        ]
    assert [json.loads(line) for line in taken.read_text().splitlines()] == [located(n) for n in range(300)]


def located(n: int) -> dict[str, Any]:
    """What plain Python makes of a click; JSON leaves out what is null."""
    shop, market = SHOPS[n % 3]
    city = CITIES[n % 4 + 1]
    found = {"user": f"u{n}", "page": f"/{shop}/cart", "shop": shop, "market": market}
    return found if city is None else {**found, "city": city}
