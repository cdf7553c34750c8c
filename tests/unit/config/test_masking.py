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


def test_fault_in_the_settings_masks_the_value(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused) as refused:
        load(environ={"FOREBAY_SERVER_PORT": "postgresql://me:secret@db"})
    assert "secret" not in str(refused.value)
