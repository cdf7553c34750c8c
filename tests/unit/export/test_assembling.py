"""From settings to the way out: what is put together where settings leave a choice, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.assemble_export import SIGNALS, Surroundings, destination, way_out
from forebay.clock import SystemClock
from forebay.config.export_model import ReceiversSettings
from forebay.config.lists import DestinationSettings
from forebay.config.model import Settings
from forebay.errors import SettingsRefused
from forebay.export.destinations.otlp_grpc import OtlpGrpcDestination
from forebay.export.way_out import WayOut
from forebay.ingest.receivers.decoding import Telemetry
from forebay.otlp.kinds import Kind
from forebay.sendqueue.queues.fastqueue import FastQueue
from forebay.sendqueue.queues.hybrid import HybridQueue


def around() -> Surroundings:
    nothing: Any = None
    return Surroundings(nothing, nothing, SystemClock(), nothing, cpus=2)


def assembled(folder: Path, to: dict[str, Any], *, receiver: str = "otlp_http", **buffer: Any) -> WayOut:
    receivers = {receiver: {"listen": "127.0.0.1:0", "to": "destination:d"}, "buffer": buffer}
    settings = Settings(data_dir=folder, receivers=ReceiversSettings.model_validate(receivers))
    return way_out(settings, [DestinationSettings.model_validate({"name": "d", **to})], [], around())


PROMETHEUS = {"type": "remote_write", "url": "http://127.0.0.1:1/write"}
COLLECTOR = {"type": "otlp_http", "url": "http://127.0.0.1:1"}


async def test_hybrid_is_disk_where_order_counts(tmp_path: Path) -> None:
    queue = {"queue": {"mode": "hybrid"}}
    ordered = assembled(tmp_path / "a", PROMETHEUS | queue).outlets["d"]
    assert isinstance(ordered.feed.queue, FastQueue)
    assert ordered.mode == "disk"
    free = assembled(tmp_path / "b", COLLECTOR | queue).outlets["d"]
    assert isinstance(free.feed.queue, HybridQueue)
    for outlet in (ordered, free):
        await outlet.feed.close()


async def test_receiver_that_no_request_could_pass_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="a destination that takes remote_write"):
        assembled(tmp_path, COLLECTOR, receiver="remote_write")


@pytest.mark.parametrize(
    ("url", "is_insecure"), [("http://c:4317", True), ("https://c:4317", False), ("c:4317", False)]
)
def test_grpc_without_tls_is_what_an_http_url_says(url: str, is_insecure: bool) -> None:
    settings = DestinationSettings.model_validate({"name": "d", "type": "otlp_grpc", "url": url})
    found = destination(settings, around())
    assert isinstance(found, OtlpGrpcDestination)
    assert (found._options.endpoint, found._options.is_insecure) == ("c:4317", is_insecure)


async def test_requests_that_fit_are_not_refused_because_they_were_joined(tmp_path: Path) -> None:
    found = assembled(tmp_path, COLLECTOR | {"queue": {"max_bytes": "4Ki"}}, flush_interval="50ms")
    [receiver] = found.receivers
    accept: Any = receiver._accept  # type: ignore[attr-defined]
    telemetry = Telemetry(Kind.METRICS, bytes(3000), 1)
    assert list(await asyncio.gather(accept(telemetry), accept(telemetry))) == ["memory", "memory"]
    assert found.outlets["d"].feed.dropped == {"oldest": 1}  # one at a time fits, and that is the queue's business


def test_every_receiver_of_the_settings_is_known() -> None:
    sections = set(ReceiversSettings.model_fields) - {"body_size", "in_flight_size", "buffer"}
    assert set(SIGNALS) == sections
