"""A server with keys and a certificate, and all of Forebay's own that talks to it: client, CLI, Spark and `up`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from queen import Queen

from fixtures.certificates import make_certificate
from fixtures.command_line import typed
from fixtures.spark_processes import short_lived
from forebay.api.access import new_key
from forebay.client import Client, Refused, Unreachable
from forebay.testing.running_server import RunningServer

START_SECONDS_MAX = 180.0
COPY = """\
flows:
  - name: copy
    mode: stream
    source: {queue: numbers}
    sink: {queue: copies}
    trigger: 0s
"""
SPARK_JOB = """
import sys
from forebay.spark import spark_session
spark = spark_session("local[1]", url=sys.argv[1], api_key=sys.argv[2], config={"spark.log.level": "ERROR"})
frame = spark.read.format("forebay").option("queue", "numbers").load()
frame.select("payload").write.format("forebay").option("queue", "copies").mode("append").save()
print("copied", spark.read.format("forebay").option("queue", "copies").load().count())
spark.stop()
"""


class Secured(NamedTuple):
    """Keys by scope, and the files that a server is started with."""

    keys: dict[str, str]
    keys_file: Path
    certificate: Path
    certificate_key: Path

    def arguments(self) -> list[str]:
        words = ["--server-keys", str(self.keys_file), "--server-certificate", str(self.certificate)]
        return [*words, "--server-certificate-key", str(self.certificate_key)]


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """The certificate is trusted by this process and all that it starts."""
    keys, listed = {}, []
    for scope in ("read", "write", "admin"):
        keys[scope], digest = new_key()
        listed.append({"name": scope, "sha256": digest, "scope": scope})
    keys_file = tmp_path / "keys.json"
    keys_file.write_text(json.dumps({"keys": listed}))
    certificate, certificate_key = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return Secured(keys, keys_file, certificate, certificate_key)


@pytest.fixture
def server(secured: Secured, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", arguments=secured.arguments()) as started:
        assert started.url.startswith("https://")
        yield started


def forebay(folder: Path, *words: str, key: str = "") -> subprocess.CompletedProcess[str]:
    return typed(*words, key=key, folder=folder)


async def test_bearer_token_of_queens_client_is_a_key(secured: Secured, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", arguments=["--server-keys", str(secured.keys_file)]) as server:
        async with Queen(server.url, bearer_token=secured.keys["write"], retry_attempts=1) as client:
            await client.queue("orders").push([{"data": {"n": 1}}])
            [message] = await client.queue("orders").batch(10).wait(False).pop()
            assert message["data"] == {"n": 1}
        async with Queen(server.url, bearer_token="fb_wrong", retry_attempts=1) as stranger:
            with pytest.raises(Exception, match="the key is not known"):
                await stranger.queue("orders").push([{"data": {"n": 2}}])


def test_client_with_the_right_key_pushes_and_pops(server: RunningServer, secured: Secured) -> None:
    with Client(server.url, api_key=secured.keys["write"]) as client:
        client.push("orders", {"n": 1})
        (message,) = client.pop("orders", batch=10)
        assert message.data == {"n": 1}
        assert client.ack(message)
    with Client(server.url, api_key=secured.keys["read"]) as client, pytest.raises(Refused, match="may read"):
        client.push("orders", {"n": 2})
    with Client(server.url) as client, pytest.raises(Refused, match="a key is needed"):
        client.push("orders", {"n": 2})


def test_client_that_does_not_trust_the_certificate_sends_nothing(
    server: RunningServer, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with Client(server.url, api_key=secured.keys["admin"], attempts=1) as client, pytest.raises(Unreachable):
        client.push("orders", {"n": 1})


def test_commands_take_the_key_from_the_environment(server: RunningServer, secured: Secured, tmp_path: Path) -> None:
    words = ["--url", server.url]
    pushed = forebay(tmp_path, "push", "orders", '{"n": "first"}', *words, key=secured.keys["write"])
    assert pushed.returncode == 0, pushed.stderr
    popped = forebay(tmp_path, "pop", "orders", *words, key=secured.keys["write"])
    assert popped.returncode == 0, popped.stderr
    assert "first" in popped.stdout
    listed = forebay(tmp_path, "queues", "-o", "json", *words, key=secured.keys["read"])
    assert [queue["name"] for queue in json.loads(listed.stdout)] == ["orders"]
    refused = forebay(tmp_path, "queues", *words)
    assert refused.returncode != 0
    assert "a key is needed" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_spark_reads_and_writes(server: RunningServer, secured: Secured, tmp_path: Path) -> None:
    with Client(server.url, api_key=secured.keys["write"]) as client:
        client.push_many("numbers", list(range(10)))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-c", SPARK_JOB, server.url, secured.keys["write"]]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environ, **short_lived(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS_MAX,
    )
    assert "copied 10" in done.stdout, done.stderr[-3000:]
    assert secured.keys["write"] not in done.stdout + done.stderr


def test_up_serves_and_works_with_keys_and_certificate(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(COPY)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    up = subprocess.Popen(
        [sys.executable, "-m", "forebay", "up", "-c", "forebay.yaml", "--server-port", "0", *secured.arguments()],
        cwd=tmp_path,
        env={**environ, **short_lived(tmp_path), "FOREBAY_API_KEY": secured.keys["admin"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with up:
        try:
            lines: list[str] = []
            for line in up.stdout or ():
                lines.append(line)
                if "forebay: serving " in line:
                    url = line.split("serving ")[1].split(" ")[0]
                if "copy: running" in line:
                    break
            assert up.poll() is None, "".join(lines)
            with Client(url, api_key=secured.keys["write"]) as client:
                client.push_many("numbers", list(range(10)))
                found: list[object] = []
                while len(found) < 10:
                    found += [message.data for message in client.pop("copies", batch=10, wait=True, auto_ack=True)]
            assert sorted(map(int, map(str, found))) == list(range(10))
            up.terminate()
            rest = up.stdout.read() if up.stdout else ""
            assert up.wait(START_SECONDS_MAX) == 0, rest
            assert secured.keys["admin"] not in "".join(lines) + rest
        finally:
            up.kill()
