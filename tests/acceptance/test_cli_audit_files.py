"""`forebay audit` counts buffer files and send queues again: files that hold less than the server says are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acceptance.test_cli_audit import audited
from fixtures.running_stores import Http
from fixtures.telemetry import Proxy, gauges, remote_write
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers.machine import free_port

BATCHES = 120
"""More than wait for their next attempt in memory."""


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(content[position : position + 1])


def stages(told: dict[str, Any], stage: str) -> list[dict[str, Any]]:
    return [one for one in told["stages"] if one["stage"] == stage]


def test_event_that_is_damaged_in_a_buffer_file_is_a_difference(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        http = Http(server.url)
        items = [{"queue": "orders", "payload": n} for n in range(7)]
        assert http.post("/push", {"items": items, "bufferMs": 3_600_000, "bufferMax": 1000}).status == 201
        [before] = stages(audited(server), "buffer")
        assert (before["name"], before["accepted"], before["exact"]) == ("orders", 7, True)
        [file] = server.data_dir.rglob("qos0.buf")
        flip(file, file.stat().st_size // 2)
        told = audited(server, code=1)
        [found] = stages(told, "buffer")
        assert found["differences"] == ["6 messages are in the files; the server counts 7"]
        flip(file, file.stat().st_size // 2)
        assert audited(server)["balanced"] is True
        http.close()


def test_batch_that_is_damaged_in_a_send_queue_is_a_difference(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}/write"
    disk: dict[str, Any] = {
        "mode": "disk",
        "inmemory_blocks": 1,
        "meta_sync_interval": "50ms",
        "backoff": {"enabled": False},
    }
    settings = {"destinations": [remote_write(away, **disk)]}
    with Proxy(tmp_path, settings, receivers={"otlp_http": "destination:prometheus"}) as proxy:
        for number in range(BATCHES):
            proxy.push(gauges("load", {1000 + number: float(number)}))
        wait_until(lambda: proxy.metric("fastqueue_disk_bytes", destination="prometheus") > 0)
        [before] = stages(audited(proxy.server), "send queue")
        assert (before["accepted"], before["parts"]["waiting"], before["differences"]) == (BATCHES, BATCHES, [])
        chunk = max(proxy.server.data_dir.rglob("0000000000000000"), key=lambda path: path.stat().st_size)
        flip(chunk, chunk.stat().st_size - 200)
        [found] = stages(audited(proxy.server, code=1), "send queue")
        assert found["differences"] == [f"{BATCHES - 1} batches are there; the server counts {BATCHES}"]
