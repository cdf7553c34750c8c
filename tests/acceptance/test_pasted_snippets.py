"""What README and quickstart show is pasted into a shell and into Python, and does what the text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from forebay.testing.running_server import RunningServer

ROOT = Path(__file__).parents[2]


def snippets(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(snippet) for _, snippet in found]


def pasted(server: RunningServer, snippet: str, folder: Path, program: str = "sh") -> str:
    """What it prints. The server is another one than on the page, on a port of its own."""
    address = server.url.removeprefix("http://")
    snippet = re.sub(r"(localhost|127\.0\.0\.1):6632", address, snippet).replace("forebay serve &\n", "")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", "-eu", "-c", snippet] if program == "sh" else [sys.executable, "-c", snippet]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "FOREBAY_URL": server.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_readme_pushes_and_pops(forebay_server: RunningServer, tmp_path: Path) -> None:
    (snippet,) = snippets("README.md", "sh")
    assert pasted(forebay_server, snippet, tmp_path).splitlines() == ["queued: seq 1, receipt log", '{"id": 7}']


def test_quickstart_leaves_nothing_leased(forebay_server: RunningServer, tmp_path: Path) -> None:
    commands, requests = snippets("docs/quickstart.md", "sh")
    python, _ = snippets("docs/quickstart.md", "python")
    told = pasted(forebay_server, commands, tmp_path)
    assert "queued: seq 1, receipt log" in told
    assert "orders" in told
    answers = pasted(forebay_server, requests, tmp_path)
    assert '"data":{"id": 8}' in answers
    assert '"success":true,"messages":1' in answers
    assert pasted(forebay_server, python, tmp_path, "python") == "{'id': 9}\n"
    nothing = pasted(forebay_server, "forebay pop orders@billing", tmp_path)
    assert nothing == "nothing: no message of 'orders' waits for group 'billing'\n"
