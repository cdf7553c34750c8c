"""A destination obeys every key that its settings may have. What its type would ignore is a fault, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.config.lists import OBEYED, DestinationSettings, DestinationType
from forebay.config.load import load
from forebay.errors import SettingsRefused

NEEDED: dict[DestinationType, dict[str, Any]] = {
    "otlp_http": {"url": "https://c"},
    "otlp_grpc": {"url": "c:4317"},
    "remote_write": {"url": "https://c"},
    "http": {"url": "https://c"},
    "queue": {"queue_name": "q"},
    "file": {"path": "lines"},
}
VALUES: dict[str, Any] = {
    "url": "https://c",
    "queue_name": "q",
    "path": "lines",
    "format": "ndjson",
    "compression": "gzip",
    "headers": {"x": "y"},
    "timeout": "1s",
    "ca_file": "ca.pem",
    "certificate": "cert.pem",
    "certificate_key": "key.pem",
    "insecure": True,
    "max_size": "1Mi",
}
PAIRS = [(of, key) for of in NEEDED for key in VALUES]


def test_every_key_is_tried_here() -> None:
    assert set(VALUES) == set(DestinationSettings.model_fields) - {"name", "type", "queue"}
    assert set(VALUES) == set().union(*OBEYED.values())


@pytest.mark.parametrize(("of", "key"), PAIRS)
def test_a_key_is_taken_where_it_is_obeyed_and_a_fault_elsewhere(of: DestinationType, key: str) -> None:
    given = {"name": "d", "type": of, **NEEDED[of], key: VALUES[key]}
    if key == "certificate_key" and key in OBEYED[of]:
        given["certificate"] = "cert.pem"
    if key in OBEYED[of]:
        DestinationSettings.model_validate(given)
    else:
        with pytest.raises(ValueError, match=f"type {of} does not obey {key}; it has"):
            DestinationSettings.model_validate(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"type": "otlp_grpc", "url": "c:4317", "compression": "zstd"}, "type otlp_grpc: gzip or none"),
        ({"type": "file", "path": "lines", "format": "json"}, "type file: ndjson or envelopes"),
        ({"type": "http", "url": "https://c", "certificate_key": "key.pem"}, "needs its certificate"),
        ({"type": "otlp_grpc", "url": "http://c", "ca_file": "ca.pem"}, "certificates, or no TLS"),
        ({"type": "otlp_grpc", "url": "c:1", "insecure": True, "certificate": "c.pem"}, "certificates, or no TLS"),
    ],
)
def test_a_value_that_would_be_ignored_is_a_fault(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DestinationSettings.model_validate({"name": "d", **given})


def test_the_fault_is_told_with_the_line_of_its_destination(tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text("destinations:\n  - {name: p, type: remote_write, url: 'http://p', compression: zstd}\n")
    with pytest.raises(SettingsRefused) as refused:
        load(file=file)
    [fault] = refused.value.faults
    assert (fault.key, fault.origin) == ("destinations.0", f"{file} line 2")
    assert "does not obey compression" in fault.allowed
