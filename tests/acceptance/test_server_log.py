"""The server's log as JSON: every line of a run is an object with an action."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from fixtures.running_stores import Http
from forebay.testing.running_server import RunningServer


def test_every_line_is_json_with_an_action_and_no_payload_is_in_it(tmp_path: Path) -> None:
    environment = {"FOREBAY_LOGGING_FORMAT": "json", "FOREBAY_SERVER_LOG_LEVEL": "debug"}
    with RunningServer(tmp_path / "data", environment=environment) as running:
        with closing(Http(running.url)) as http:
            http.push("orders", {"card": "4111-hidden"})
            [message] = http.pop("orders", batch=1)
            http.ack(message, "dlq", error="broken")
            assert http.post("/push", {"items": [{"queue": "orders"}]}).status == 400
        running.stop()
        lines = [json.loads(line) for line in running.errors().splitlines() if line.strip()]
    assert lines
    assert all({"time", "level", "action", "message", "logger"} <= line.keys() for line in lines)
    assert "hidden" not in str(lines)
