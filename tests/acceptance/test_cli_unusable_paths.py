"""A path that cannot be used ends a command with the path and a remedy, whichever setting or argument named it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fixtures.certificates import make_certificate
from fixtures.command_line import typed

UNWRITABLE = "/sys/kernel/forebay"
"""Nobody may make a directory there, root neither."""

FLOW = """
flows:
  - name: copy
    mode: stream
    source: {queue: events, payloadAs: json, schema: "id INT"}
    actions: [{name: all, sql: SELECT * FROM input}]
    sink: {queue: copied}
"""
SENDING = {
    "ca": 'type: http, url: "https://127.0.0.1:1", ca_file: a-file',
    "no-ca": 'type: http, url: "https://127.0.0.1:1", ca_file: nowhere.pem',
    "below-a-file": "type: file, path: a-file/below",
    "no-file": "type: file, path: a-directory",
    "send-queue": 'type: otlp_http, url: "http://127.0.0.1:1", queue: {mode: disk, path: a-file}',
    "send-queue-below": 'type: otlp_http, url: "http://127.0.0.1:1", queue: {mode: disk, path: a-file/below}',
}
"""Destinations, by the name of the settings file that describes them."""
OTLP = {"send-queue", "send-queue-below"}
"""Those that a receiver feeds, through their send queue; the others drain a queue."""


def settings_of(name: str) -> str:
    fed = 'receivers: {otlp_http: {listen: "127.0.0.1:0", to: "destination:out"}}'
    draining = 'exports: [{name: all, from: "orders@out", to: out}]'
    return f"destinations:\n  - {{name: out, {SENDING[name]}}}\n{fed if name in OTLP else draining}\n"


def forebay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return typed(*words, folder=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a-file").write_text("no directory\n")
    (tmp_path / "a-directory").mkdir()
    (tmp_path / "flows.yaml").write_text(FLOW)
    for name in SENDING:
        (tmp_path / f"{name}.yaml").write_text(settings_of(name))
    make_certificate(tmp_path)
    return tmp_path


SERVE = ("serve", "--port", "1")
CERTIFIED = (*SERVE, "--server-certificate", "cert.pem", "--server-certificate-key", "key.pem")
COMMANDS = [
    ((*SERVE, "--data-dir", "a-file"), "a-file"),
    ((*SERVE, "--data-dir", "a-file/below"), "a-file/below"),
    ((*SERVE, "--data-dir", UNWRITABLE), UNWRITABLE),
    ((*SERVE, "--buffer-dir", "a-file"), "a-file"),
    ((*SERVE, "--buffer-dir", UNWRITABLE), UNWRITABLE),
    ((*SERVE, "--server-store", "postgresql://127.0.0.1:1/none", "--data-dir", "a-file"), "a-file"),
    ((*SERVE, "--server-keys", "a-directory"), "a-directory"),
    ((*SERVE, "--server-keys", "nowhere"), "nowhere"),
    ((*SERVE, "--server-certificate", "a-directory", "--server-certificate-key", "a-directory"), "a-directory"),
    ((*SERVE, "--server-certificate", "a-file", "--server-certificate-key", "a-file"), "a-file"),
    ((*CERTIFIED, "--server-client-ca-file", "a-file"), "a-file"),
    ((*CERTIFIED, "--server-client-ca-file", "nowhere"), "nowhere"),
    ((*SERVE, "--server-encryption-key-file", "a-directory"), "a-directory"),
    ((*SERVE, "--server-encryption-key-file", "nowhere"), "nowhere"),
    ((*SERVE, "-c", "ca.yaml"), "a-file"),
    ((*SERVE, "-c", "no-ca.yaml"), "nowhere.pem"),
    ((*SERVE, "-c", "below-a-file.yaml"), "a-file/below"),
    ((*SERVE, "-c", "no-file.yaml"), "a-directory"),
    ((*SERVE, "-c", "send-queue.yaml"), "a-file"),
    ((*SERVE, "-c", "send-queue-below.yaml"), "a-file"),
    (("serve", "-c", "a-directory"), "a-directory"),
    (("push", "orders", "--file", "/proc/1/mem"), "/proc/1/mem"),
    (("log", "inspect", "a-file"), "a-file"),
    (("config", "check", "a-directory"), "a-directory"),
    (("flows", "check", "a-directory"), "a-directory"),
    (("buffers", "list", "--data-dir", "a-file"), "a-file"),
    (("bench", "commitlog", "--directory", "a-file"), "a-file"),
    (("worker", "-c", "flows.yaml", "--data-dir", UNWRITABLE), UNWRITABLE),
]


@pytest.mark.parametrize(("words", "path"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_path_that_cannot_be_used_is_named_with_a_remedy(folder: Path, words: tuple[str, ...], path: str) -> None:
    ended = forebay(folder, *words)
    told = ended.stdout + ended.stderr
    assert "Traceback" not in told
    assert "BUG" not in told
    assert path in told
    assert ended.returncode in (1, 2)


def test_the_remedy_names_the_setting(folder: Path) -> None:
    told = forebay(folder, *SERVE, "--data-dir", "a-file").stderr
    assert "data_dir 'a-file' cannot be written: File exists" in told
    assert "It is a file: name a directory, with data_dir" in told
    told = forebay(folder, *SERVE, "-c", "below-a-file.yaml").stderr
    assert "destinations.out.path 'a-file/below' cannot be written: 'a-file' is no directory" in told
    assert "Make the directory, or name another file, with destinations.out.path" in told
