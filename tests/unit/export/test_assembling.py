"""From settings to the way out: what is put together where settings leave a choice, and what is refused."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest

from forebay.assemble_export import (
    SIGNALS,
    CertificateUnusable,
    SecretMissing,
    Surroundings,
    destination,
    plain_destination,
    way_out,
)
from forebay.clock import SystemClock
from forebay.config.export_model import ReceiversSettings
from forebay.config.lists import DestinationSettings, ExportSettings
from forebay.config.model import Settings
from forebay.errors import SettingsRefused
from forebay.export.batch import ExportBatch
from forebay.export.destinations.otlp_grpc import OtlpGrpcDestination
from forebay.export.way_out import WayOut
from forebay.ingest.receivers.decoding import Telemetry
from forebay.otlp.kinds import Kind
from forebay.sendqueue.queue import SendQueue
from forebay.sendqueue.queues.hybrid import HybridQueue
from forebay.sendqueue.sizing import memory_limit_bytes


def around() -> Surroundings:
    nothing: Any = None
    return Surroundings(nothing, nothing, SystemClock(), nothing, cpus=2)


def assembled(folder: Path, to: dict[str, Any], *, receiver: str = "otlp_http", **buffer: Any) -> WayOut:
    receivers = {receiver: {"listen": "127.0.0.1:0", "to": "destination:d"}, "buffer": buffer}
    settings = Settings(data_dir=folder, receivers=ReceiversSettings.model_validate(receivers))
    return way_out(settings, [DestinationSettings.model_validate({"name": "d", **to})], [], around())


PROMETHEUS = {"type": "remote_write", "url": "http://127.0.0.1:1/write"}
COLLECTOR = {"type": "otlp_http", "url": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    "to",
    [PROMETHEUS, {"type": "queue", "queue_name": "q"}, {"type": "file", "path": "lines"}],
    ids=lambda to: to["type"],
)
async def test_hybrid_keeps_the_order_where_order_counts(to: dict[str, Any], tmp_path: Path) -> None:
    receiver = "remote_write" if to is PROMETHEUS else "otlp_http"
    outlet = assembled(tmp_path, to | {"queue": {"mode": "hybrid"}}, receiver=receiver).outlets["d"]
    assert (outlet.kind, is_fifo(outlet.feed.queue)) == ("hybrid, fifo", True)
    await outlet.feed.close()


@pytest.mark.parametrize("order", ["tiers", "fifo"])
async def test_hybrid_has_the_order_of_its_settings_where_any_order_will_do(order: str, tmp_path: Path) -> None:
    outlet = assembled(tmp_path, COLLECTOR | {"queue": {"mode": "hybrid", "order": order}}).outlets["d"]
    assert (outlet.kind, is_fifo(outlet.feed.queue)) == (f"hybrid, {order}", order == "fifo")
    await outlet.feed.close()


def is_fifo(queue: SendQueue[ExportBatch]) -> bool:
    assert isinstance(queue, HybridQueue)
    assert queue.spilling is not None
    return queue.spilling.is_fifo


async def test_the_start_tells_the_queue_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = assembled(tmp_path, PROMETHEUS | {"queue": {"mode": "hybrid"}}, receiver="remote_write")
    with caplog.at_level("INFO", "forebay.export"):
        await made.start()
    await made.stop_receivers()
    await made.stop()
    assert f"d: send queue: hybrid, fifo, in {tmp_path / 'export' / 'd'}" in caplog.messages


async def test_receiver_that_no_request_could_pass_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="a destination that takes remote_write"):
        assembled(tmp_path, COLLECTOR, receiver="remote_write")


@pytest.mark.parametrize(
    ("url", "is_insecure"), [("http://c:4317", True), ("https://c:4317/", False), ("c:4317", False)]
)
def test_grpc_without_tls_is_what_an_http_url_says(url: str, is_insecure: bool) -> None:
    settings = DestinationSettings.model_validate({"name": "d", "type": "otlp_grpc", "url": url})
    found = plain_destination(settings, around(), "d")
    assert isinstance(found, OtlpGrpcDestination)
    assert (found._options.endpoint, found._options.is_insecure) == ("c:4317", is_insecure)


@pytest.mark.parametrize(
    "of", [COLLECTOR, {"type": "otlp_grpc", "url": "c:4317"}, {"type": "http", "url": "https://c"}]
)
@pytest.mark.parametrize("content", [None, "this is no certificate"])
def test_certificate_that_cannot_be_used_is_told_at_the_start(
    of: dict[str, Any], content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    settings = DestinationSettings.model_validate({"name": "d", **of, "ca_file": str(file)})
    with pytest.raises(CertificateUnusable, match=r"destinations\.d: .*ca\.pem"):
        destination(settings, around())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("env:NO_SUCH_TOKEN", "the environment has no NO_SUCH_TOKEN"),
        ("file:FOLDER/gone", "FOLDER/gone cannot be read: No such file or directory"),
        ("file:FOLDER", "FOLDER cannot be read: Is a directory"),
        ("file:FOLDER/bytes", "FOLDER/bytes is no text"),
    ],
)
def test_secret_that_is_not_there_is_told_at_the_start_with_its_key(value: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"hunter\xff2")
    headers = {"X-Tenant": "a", "Authorization": value.replace("FOLDER", str(tmp_path))}
    with pytest.raises(SecretMissing) as missing:
        assembled(tmp_path, COLLECTOR | {"headers": headers})
    assert missing.value.message == f"destinations.d.headers.Authorization: {reason.replace('FOLDER', str(tmp_path))}"
    assert missing.value.remedy
    assert "hunter" not in "".join(traceback.format_exception(missing.value))


async def test_requests_that_fit_are_not_refused_because_they_were_joined(tmp_path: Path) -> None:
    found = assembled(tmp_path, COLLECTOR | {"queue": {"max_bytes": "4Ki"}}, flush_interval="50ms")
    [receiver] = found.receivers
    accept: Any = receiver._accept  # type: ignore[attr-defined]
    telemetry = Telemetry(Kind.METRICS, bytes(3000), 1)
    assert list(await asyncio.gather(accept(telemetry), accept(telemetry))) == ["memory", "memory"]
    assert found.outlets["d"].feed.dropped == {"oldest": 1}  # one at a time fits, and that is the queue's business


async def test_memory_has_to_hold_what_send_queues_are_promised_and_nothing_else(tmp_path: Path) -> None:
    vast = {"queue": {"max_bytes": memory_limit_bytes()}}
    with pytest.raises(SettingsRefused, match="memory_limit_ratio"):
        assembled(tmp_path, COLLECTOR | vast)
    of_exports = [DestinationSettings.model_validate({"name": f"d{n}", **COLLECTOR, **vast}) for n in range(3)]
    assert way_out(Settings(data_dir=tmp_path), of_exports, [], around()).outlets == {}
    on_disk = assembled(tmp_path, COLLECTOR | {"queue": {**vast["queue"], "mode": "disk"}})
    await on_disk.outlets["d"].feed.close()


async def test_what_waits_for_a_destination_that_is_gone_is_told_at_every_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = assembled(tmp_path, COLLECTOR)
    for number in range(3):
        await made.outlets["d"].feed.push(ExportBatch(Kind.METRICS, b"body", 1, 1, str(number)))
    await made.outlets["d"].feed.close()
    again = assembled(tmp_path, COLLECTOR)
    assert caplog.text == ""
    await again.outlets["d"].feed.close()
    way_out(Settings(data_dir=tmp_path), [], [], around())
    [record] = caplog.records
    assert f"{tmp_path / 'export' / 'd'}: 3 batches wait here that nothing sends" in record.getMessage()


async def test_what_waits_in_a_failover_queue_that_nothing_drains_is_told_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = assembled(tmp_path, COLLECTOR | {"queue": {"mode": "disk"}})
    feed = made.outlets["d"].feed
    for queue in (feed.queue, feed.failover, feed.failover):
        queue.push(ExportBatch(Kind.METRICS, b"body", 1, 1, "k"))
    await feed.close()
    way_out(Settings(data_dir=tmp_path), [], [], around())
    assert [record.getMessage().split(": ")[1][:20] for record in caplog.records] == ["3 batches wait here "]


def test_every_receiver_of_the_settings_is_known() -> None:
    sections = set(ReceiversSettings.model_fields) - {"body_size", "in_flight_size", "buffer"}
    assert set(SIGNALS) == sections


async def test_every_destination_has_an_outbox_that_rests(tmp_path: Path) -> None:
    made = way_out(Settings(data_dir=tmp_path), DESTINATIONS, [], around())
    resting = {one.name: (one.destination, one.feed.options.group, one.feed.options.kind) for one in made.outboxes}
    assert made.exports == {}
    assert resting == {
        ".export.web": ("web", "export", Kind.MESSAGES),
        ".export.prom": ("prom", "export", Kind.METRICS),
        ".export.otel": ("otel", "export", Kind.METRICS),
    }


async def test_an_export_of_the_settings_takes_the_place_of_an_outbox_that_it_reads(tmp_path: Path) -> None:
    written = [
        {"name": "spans", "from": ".export.otel@export", "to": "otel", "format": "traces"},
        {"name": "archive", "from": ".export.web@archive", "to": "prom", "format": "metrics"},
    ]
    entries = [ExportSettings.model_validate(one) for one in written]
    made = way_out(Settings(data_dir=tmp_path), DESTINATIONS, entries, around())
    assert sorted(made.exports) == ["archive", "spans"]
    assert sorted(one.name for one in made.outboxes) == [".export.prom", ".export.web"]


DESTINATIONS = [
    DestinationSettings.model_validate(one)
    for one in (
        {"name": "web", "type": "http", "url": "http://127.0.0.1:1"},
        {"name": "prom", **PROMETHEUS},
        {"name": "otel", **COLLECTOR},
    )
]
