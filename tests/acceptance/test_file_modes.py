"""What is on the disk is for its owner alone."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from fixtures.arrow_steps import ipc
from fixtures.running_stores import Http
from forebay.testing.running_server import RunningServer

UMASK = [
    sys.executable,
    "-c",
    "import os, sys; os.umask(0); os.execv(sys.executable, [sys.executable, '-m', 'forebay', *sys.argv[1:]])",
]


def test_no_other_user_may_read_or_write_data_files(tmp_path: Path) -> None:
    """Even where the umask would let them."""
    data = tmp_path / "data"
    with RunningServer(data, program=UMASK) as server:
        http = Http(server.url)
        assert http.post("/push", {"items": [{"queue": "orders", "payload": 1}]}).status == 201
        assert http.post("/push", {"items": [{"queue": "orders", "payload": 1}], "bufferMs": 3_600_000}).status == 201
        rows = ipc({"payload": ["1"]})
        assert http.send("POST", "/api/v1/arrow/queues/orders?producer=p&epoch=1", rows).status == 201
        paths = [data, *data.rglob("*")]
        kinds = {path.suffix or path.name for path in paths if path.is_file()}
        assert {".arrow", ".sqlite"} <= kinds, kinds
        open_to_others = [str(path) for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077]
        assert open_to_others == []
        http.close()
