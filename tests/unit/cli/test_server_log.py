"""The server's log: every event has an action, both forms tell the same, and neither tells a secret."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.access.digests import new_key
from forebay.cli.server_log import JsonFormatter, LineFormatter

SOURCE = Path(__file__).parents[3] / "src/forebay"
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {"_log", "log", "logger"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in METHODS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in LOGGERS
            ):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def test_every_event_has_an_action() -> None:
    found = list(calls())
    assert len(found) > 50
    assert [place for place, call in found if not any(word.arg == "extra" for word in call.keywords)] == []


def test_an_action_is_a_word() -> None:
    for place, call in calls():
        [extra] = [word.value for word in call.keywords if word.arg == "extra"]
        if isinstance(extra, ast.Dict):
            named = {k.value: v for k, v in zip(extra.keys, extra.values, strict=True) if isinstance(k, ast.Constant)}
            assert "action" in named, place
            if isinstance(action := named["action"], ast.Constant):
                assert re.fullmatch(r"[a-z][a-z0-9_]+", str(action.value)), place


def record(message: str, *values: object, **more: object) -> logging.LogRecord:
    found = logging.LogRecord("forebay.api", logging.WARNING, "f.py", 1, message, values, None, "serve_it")
    vars(found).update(more)
    return found


def test_json_has_what_the_line_has_and_what_else_the_event_tells() -> None:
    told = json.loads(JsonFormatter().format(record("no %s", "room", action="request_busy", queue="orders", count=3)))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("time"))
    assert told == {
        "level": "warning",
        "action": "request_busy",
        "message": "no room",
        "logger": "forebay.api",
        "queue": "orders",
        "count": 3,
    }
    line = LineFormatter().format(record("no %s", "room", action="request_busy"))
    assert line.endswith("Z forebay: WARNING: [request_busy] no room")
    assert json.loads(JsonFormatter().format(record("x")))["action"] == "api.serve_it"


def test_json_is_one_line_whatever_happened() -> None:
    found = record("a\nb")
    try:
        int("first\nsecond \u2028 postgresql://me:hidden@db/x")
    except ValueError:
        found.exc_info = sys.exc_info()
    text = JsonFormatter().format(found)
    assert "\n" not in text
    told = json.loads(text)
    assert told["message"] == "a\nb"
    assert "ValueError: invalid literal" in told["exception"]
    assert "hidden" not in text


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hidden@db/x",
        "Authorization: Bearer hidden",
        "authorization: bearer hidden",
        "token=hidden",
        "api_key = hidden",
        "X-Api-Key: hidden",
    ],
)
@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_a_secret_is_in_neither_form(text: str, formatter: logging.Formatter) -> None:
    assert "hidden" not in formatter.format(record("took %s", text, detail=text))


def test_a_key_is_in_neither_form() -> None:
    key, _ = new_key()
    found = record("no such key: %s", key)
    for formatter in (LineFormatter(), JsonFormatter()):
        assert key not in formatter.format(found)
    metric = "forebay_queue_oldest_message_seconds"
    assert metric in LineFormatter().format(record(metric))
