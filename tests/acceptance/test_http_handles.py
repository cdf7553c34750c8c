"""A server whose operating system refuses it more files: told as such, and over when there are some again."""

from __future__ import annotations

import resource
from pathlib import Path

from fixtures.arrow_steps import ipc
from fixtures.running_stores import Http
from forebay.testing.running_server import RunningServer

STAGE = "/api/v1/arrow/queues/orders?producer=p&epoch=1"


def test_no_file_handles_left_is_503_and_no_bug(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server, Http(server.url) as http:
        assert http.send("POST", STAGE, ipc({"payload": ["1"]})).status == 201
        usual = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        # Files that the server closes meanwhile are handles that it has left: then the limit falls further.
        refused = None
        for opened in range(highest_handle(server.pid), 2, -1):
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (opened, usual[1]))
            refused = http.send("POST", STAGE, ipc({"payload": ["1"]}))
            if refused.status != 201:
                break
        assert refused is not None
        assert (refused.status, refused.json["code"]) != (500, "bug"), refused.body
        assert refused.status == 503, refused.body
        assert str(tmp_path) not in refused.body.decode()
        figures = http.get("/api/v1/status/buffers")
        assert figures.status in (200, 503), figures.body
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, usual)
        assert http.send("POST", STAGE, ipc({"payload": ["1"]})).status == 201
        assert http.get("/api/v1/status/buffers").status == 200
        assert "BUG" not in server.errors()


def highest_handle(pid: int) -> int:
    return max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()) + 1
