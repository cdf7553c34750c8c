"""No password on a screen or in a log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from forebay.cli.server_log import LineFormatter
from forebay.config.load import load
from forebay.config.masking import masked
from forebay.errors import SettingsRefused


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:se:cr@et/@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://:secret@db/x", "postgresql://:***@db/x"),
        (
            "postgresql://db/x?user=me&password=secret&sslmode=require",
            "postgresql://db/x?user=me&password=***&sslmode=require",
        ),
        ("postgresql://db/x?sslpassword=secret", "postgresql://db/x?sslpassword=***"),
        ("host=db password='a secret' user=me", "host=db password=*** user=me"),
        ("PASSWORD = secret", "PASSWORD = ***"),
        (
            "spark.hadoop.fs.s3a.secret.key=secret spark.forebay.apiKey=secret fs.s3a.access.key=secret a=b",
            "spark.hadoop.fs.s3a.secret.key=*** spark.forebay.apiKey=*** fs.s3a.access.key=*** a=b",
        ),
        ("fs.azure.account.key.me.core.windows.net=secret", "fs.azure.account.key.me.core.windows.net=***"),
        ("AWS_SECRET_ACCESS_KEY=secret", "AWS_SECRET_ACCESS_KEY=***"),
        ("secret_key_of=x tokens = 3", "secret_key_of=*** tokens = 3"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("embedded", "embedded"),
        ("http://localhost:6632 took me@example.org", "http://localhost:6632 took me@example.org"),
    ],
)
def test_password_is_masked_and_nothing_else(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_log_line_masks_what_any_part_of_it_says() -> None:
    record = logging.LogRecord("forebay.api", logging.WARNING, "", 1, "no %s", ("postgresql://me:secret@db/x",), None)
    record.action = "tried"
    line = LineFormatter().format(record)
    assert "secret" not in line
    assert line.endswith("forebay: WARNING: [tried] no postgresql://me:***@db/x")


@pytest.mark.parametrize(
    "fault",
    [
        'url: "http://x", headers: {Authorization: [Bearer secret]}',
        'url: "http://x", headers: {Authorization: {a: secret}}',
        'url: "http://x", headers: [secret]',
        'url: "ftp://me:secret@x"',
        'url: "http://x", timeout: "password=secret"',
        'url: "http://me:secret@x", headers: {authorization: Bearer secret}',
    ],
)
def test_fault_of_a_destination_shows_no_secret(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text(f"destinations:\n  - {{name: x, type: http, {fault}}}\n")
    with pytest.raises(SettingsRefused) as refused:
        load(file=file)
    assert all(found.key.startswith("destinations.0") for found in refused.value.faults)
    assert "secret" not in str(refused.value)


def test_fault_in_the_settings_masks_the_value(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused) as refused:
        load(environ={"FOREBAY_SERVER_PORT": "postgresql://me:secret@db"})
    assert "secret" not in str(refused.value)


def test_fault_of_a_value_that_is_a_mapping_does_not_show_it(tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text("spark:\n  properties: {spark.hadoop.fs.s3a.secret.key: hidden}\n")
    with pytest.raises(SettingsRefused) as refused:
        load(file=file)
    assert "spark.properties" in str(refused.value)
    assert "hidden" not in str(refused.value)
