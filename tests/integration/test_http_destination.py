"""Messages over HTTP to a real server: what is on the wire, and the ways there through TLS and proxies."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from fixtures.certificates import make_authority, make_certificate, make_client_certificate
from fixtures.destinations import configured
from fixtures.forward_proxy import forward_proxy
from fixtures.http_sink import HttpSink, http_sink
from forebay.export.batch import ExportMessage, MessageBatch
from forebay.export.destination import Destination
from forebay.export.outcome import ErrorClass, SendFailed
from unit.export.test_environment import empty_environment

__all__ = ["empty_environment"]

PAYLOADS = [b'{\n  "n": 1,\r\n  "text": "two\\nlines"\r\n}', b'"plain"', b"[]"]
BATCH = MessageBatch(
    [
        *(ExportMessage("q", "p", seq, f"t{seq}", 1, payload) for seq, payload in enumerate(PAYLOADS, 1)),
        ExportMessage("q", "p", 4, "t4", 1, b"\x00\n\xff", is_bytes=True),
    ],
    1,
    "key",
)
VALUES = [{"n": 1, "text": "two\nlines"}, "plain", [], "AAr/"]
DECOMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "zstd": lambda body: bytes(cramjam.zstd.decompress(body)),
    "snappy": lambda body: bytes(cramjam.snappy.decompress_raw(body)),
}


async def send(destination: Destination) -> None:
    await destination.send(destination.prepare(BATCH))


@pytest.mark.parametrize("compression", DECOMPRESSED)
async def test_ndjson_is_a_line_for_each_payload_compressed_as_the_settings_say(compression: str) -> None:
    async with (
        http_sink(HttpSink(is_decompressed=False)) as sink,
        configured("http", sink.url, format="ndjson", compression=compression) as destination,
    ):
        await send(destination)
    [request] = sink.received
    assert request.headers["Content-Type"] == "application/x-ndjson"
    assert request.headers.get("Content-Encoding", "none") == compression
    body = DECOMPRESSED[compression](request.body)
    assert body.endswith(b"\n")
    assert b"\r" not in body
    assert [json.loads(line) for line in body.split(b"\n")[:-1]] == VALUES


@pytest.mark.parametrize("compression", ["gzip", "zstd", "snappy"])
async def test_json_is_the_same_array_whatever_compresses_it(compression: str) -> None:
    async with http_sink(HttpSink(is_decompressed=False)) as sink:
        for how in ("none", compression):
            async with configured("http", sink.url, compression=how) as destination:
                await send(destination)
    plain, small = sink.received
    assert small.headers["Content-Encoding"] == compression
    assert small.headers["Content-Type"] == plain.headers["Content-Type"] == "application/json"
    assert DECOMPRESSED[compression](small.body) == plain.body
    assert json.loads(plain.body) == VALUES


async def test_header_from_a_file_is_sent_without_the_line_feed_behind_it(tmp_path: Path) -> None:
    secret = tmp_path / "warehouse"
    secret.write_text("Bearer hunter2\n")
    headers = {"Authorization": f"file:{secret}"}
    async with http_sink() as sink, configured("http", sink.url, headers=headers) as destination:
        await send(destination)
    assert sink.received[0].headers["Authorization"] == "Bearer hunter2"


def server_tls(certificate: Path, key: Path, clients: Path | None = None) -> ssl.SSLContext:
    """Of a server that asks for certificates of this authority's clients, if there is one."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def is_a_network_error(url: str, **settings: Any) -> bool:
    async with configured("http", url, **settings) as destination:
        with pytest.raises(SendFailed) as failed:
            await send(destination)
    return failed.value.error is ErrorClass.NETWORK


async def test_server_with_a_certificate_of_ca_file_is_trusted_and_no_other(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    async with http_sink(HttpSink(tls=server_tls(certificate, key))) as sink:
        assert await is_a_network_error(sink.url)
        async with configured("http", sink.url, ca_file=str(certificate)) as destination:
            await send(destination)
    assert [request.headers["Idempotency-Key"] for request in sink.received] == ["key"]


@pytest.mark.parametrize("is_one_file", [False, True])
async def test_server_that_asks_for_a_certificate_gets_the_one_of_the_settings(
    is_one_file: bool, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    authority = make_authority(tmp_path, "clients")
    own = {"certificate": str(make_client_certificate(tmp_path, "forebay", authority))}
    if not is_one_file:
        own = {"certificate": str(tmp_path / "forebay.crt"), "certificate_key": str(tmp_path / "forebay.key")}
    async with http_sink(HttpSink(tls=server_tls(certificate, key, authority[0]))) as sink:
        assert await is_a_network_error(sink.url, ca_file=str(certificate))
        async with configured("http", sink.url, ca_file=str(certificate), **own) as destination:
            await send(destination)
    assert len(sink.received) == len(sink.attempts) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_requests_go_through_the_proxy_of_the_environment(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, tls = {}, None
    if scheme == "https":
        certificate, key = make_certificate(tmp_path)
        settings, tls = {"ca_file": str(certificate)}, server_tls(certificate, key)
    async with forward_proxy() as proxy, http_sink(HttpSink(tls=tls)) as sink:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.url)
        async with configured("http", sink.url + "/in", **settings) as destination:
            await send(destination)
    address = f"127.0.0.1:{sink.port}"
    through = {"http": f"POST http://{address}/in HTTP/1.1", "https": f"CONNECT {address} HTTP/1.1"}
    assert proxy.requests == [through[scheme]]
    assert json.loads(sink.received[0].body) == VALUES
