"""A server that runs: its keys, certificate and log level change under it, and it tells when it starts and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from fixtures.certificates import make_authority, make_certificate, make_client_certificate
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.api.access import new_key
from forebay.testing.running_server import RunningServer, ServerDidNotStart

QUEUES = "/api/v1/resources/queues"


def write_keys(path: Path, *digests: str) -> None:
    """In one step, as an editor does."""
    listed = [{"name": f"key {place}", "sha256": digest, "scope": "read"} for place, digest in enumerate(digests)]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"keys": listed}))
    fresh.replace(path)


def status_with(server: RunningServer, key: str) -> int:
    http = Http(server.url)
    try:
        return http.send("GET", QUEUES, None, {"X-API-Key": key}).status
    finally:
        http.close()


def test_file_of_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    (old, old_digest), (new, new_digest) = new_key(), new_key()
    write_keys(path, old_digest)
    with RunningServer(tmp_path / "data", store="memory://", arguments=["--server-keys", str(path)]) as server:
        assert (status_with(server, old), status_with(server, new)) == (200, 401)
        write_keys(path, new_digest)
        wait_until(lambda: status_with(server, new) == 200)
        assert status_with(server, old) == 401
        path.write_text("keys: [")
        wait_until(lambda: "[keys_refused]" in server.errors())
        assert status_with(server, new) == 200
        path.unlink()
        wait_until(lambda: server.errors().count("[keys_refused]") == 2)
        assert status_with(server, new) == 200
        write_keys(path, old_digest)
        wait_until(lambda: status_with(server, old) == 200)


def test_hangup_reads_certificate_and_log_level_again_and_kills_nothing(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = tmp_path / "forebay.yaml"
    settings.write_text("server: {log_level: error}\n")
    words = ["--config", str(settings), "--server-certificate", str(certificate), "--server-certificate-key", str(key)]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        port = int(server.url.rpartition(":")[2])

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)

        assert served() == certificate.read_text()
        make_certificate(tmp_path)
        settings.write_text("server: {log_level: info}\n")
        assert served() != certificate.read_text()
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: "[reloaded]" in server.errors())
        assert served() == certificate.read_text()
        good = certificate.read_text()
        certificate.write_text("no certificate")
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: "[reload_failed]" in server.errors())
        assert served() == good
        assert server.stop() == 0


def connects(port: int, trusted: Path, own: Path | None) -> bool:
    """Whether the server lets a client with this certificate ask for something."""
    context = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        context.load_cert_chain(own)
    connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_certificate_is_read_again_when_its_files_change(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    words = ["--server-certificate", str(certificate), "--server-certificate-key", str(key)]
    words += ["--server-log-level", "info"]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        port = int(server.url.rpartition(":")[2])
        first = ssl.get_server_certificate(("127.0.0.1", port), timeout=30)
        assert first == certificate.read_text()
        certificate.write_text("no certificate")
        wait_until(lambda: "[certificate_refused]" in server.errors())
        assert ssl.get_server_certificate(("127.0.0.1", port), timeout=30) == first
        make_certificate(tmp_path)
        wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", port), timeout=30) == certificate.read_text())
        assert server.stop() == 0


def test_only_clients_with_a_certificate_of_the_authority_connect(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    own, other = make_authority(tmp_path, "own"), make_authority(tmp_path, "other")
    ours, theirs = (make_client_certificate(tmp_path, name, by) for name, by in (("ours", own), ("theirs", other)))
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(own[0].read_bytes())
    words = ["--server-certificate", str(certificate), "--server-certificate-key", str(key)]
    words += ["--server-client-ca-file", str(authorities)]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        port = int(server.url.rpartition(":")[2])
        assert [connects(port, certificate, client) for client in (ours, theirs, None)] == [True, False, False]
        authorities.write_bytes(other[0].read_bytes())
        wait_until(lambda: connects(port, certificate, theirs))
        assert [connects(port, certificate, client) for client in (ours, theirs, None)] == [False, True, False]
        assert server.stop() == 0


def test_authorities_without_a_certificate_are_refused(tmp_path: Path) -> None:
    authority, _ = make_authority(tmp_path, "own")
    words = ["--server-client-ca-file", str(authority)]
    with pytest.raises(ServerDidNotStart, match="authorities for clients without a certificate"):
        RunningServer(tmp_path / "data", store="memory://", arguments=words).start()


def test_key_without_a_certificate_is_refused(tmp_path: Path) -> None:
    _, key = make_certificate(tmp_path)
    words = ["--server-certificate-key", str(key)]
    with pytest.raises(ServerDidNotStart, match="a key without a certificate"):
        RunningServer(tmp_path / "data", store="memory://", arguments=words).start()


def test_server_that_stops_is_not_ready_and_serves_until_its_delay_is_over(tmp_path: Path) -> None:
    words = ["--server-stop-delay", "1h", "--server-log-level", "info"]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        http = Http(server.url)
        assert http.get("/readyz").status == 200
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: http.get("/readyz").status == 503)
        assert http.get("/readyz").json["reasons"] == ["the server is stopping"]
        fresh = Http(server.url)
        assert fresh.post("/push", {"items": [{"queue": "q", "payload": 1}]}).status == 201
        fresh.close()
        http.close()
        assert server.stop() == 0


def test_log_tells_of_start_stop_and_refused_keys_with_time_and_action(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path, new_key()[1])
    words = ["--server-log-level", "info", "--server-keys", str(path)]
    with RunningServer(tmp_path / "data", arguments=words) as server:
        assert status_with(server, "a guess") == 401
        assert server.stop() == 0
        lines = server.errors().splitlines()
    assert lines
    pattern = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z forebay: [A-Z]+: \[([\w.]+)\] .+")
    actions = [found[1] if (found := pattern.fullmatch(line)) else line for line in lines]
    assert [action for action in actions if action in ("started", "refused_unauthorized", "stopping", "stopped")] == [
        "started",
        "refused_unauthorized",
        "stopping",
        "stopped",
    ]
    assert not [line for line in lines if not pattern.fullmatch(line)]
    assert "a guess" not in "".join(lines)
