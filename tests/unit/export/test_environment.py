"""When aiohttp is told to look into the environment: only if there is something in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.export.http_sender import _is_environment_telling

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy", "ws_proxy", "wss_proxy")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_environment_without_proxies_is_not_asked_at_every_request() -> None:
    assert not _is_environment_telling()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "NO_PROXY"])
def test_proxies_are_obeyed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:3128")
    assert _is_environment_telling()


def test_a_netrc_file_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine example login me password secret\n")
    assert _is_environment_telling()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert _is_environment_telling()
