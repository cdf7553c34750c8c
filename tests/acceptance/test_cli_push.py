"""`forebay push` with many messages: each is stored once, and one that is not can be found again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fixtures.running_stores import module_server as server
from forebay.testing.running_server import RunningServer

__all__ = ["server"]

MEBIBYTE = 1 << 20


def push(url: str, *words: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "forebay", "push", *words, "--url", url]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)


def stored(server: RunningServer, queue: str) -> list[object]:
    with urllib.request.urlopen(f"{server.url}/api/v1/messages?queue={queue}&limit=10000", timeout=30) as answer:
        return [message["data"] for message in json.load(answer)["messages"]]


@contextmanager
def losing_first_answer(url: str) -> Iterator[str]:
    """A proxy that passes the first request on, and closes the connection instead of answering it."""
    requests = 0

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal requests
            requests += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = urllib.request.Request(url + self.path, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=30) as response:
                answer = response.read()
            self.close_connection = True
            if requests > 1:
                self.send_response(response.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
        thread.join()
    assert requests > 1


def test_items_without_an_id_are_stored_once_when_an_answer_is_lost(server: RunningServer) -> None:
    lines = (
        b'{"queue": "once", "payload": 1}\n'
        b'{"queue": "once", "payload": {"n":  2}, "transactionId": null}\n'
        b'{"queue": "once", "payload": 3, "transactionId": "three"}\n'
    )
    with losing_first_answer(server.url) as url:
        done = push(url, "--items", "-o", "json", stdin=lines)
    assert json.loads(done.stdout) == {"pushed": 3, "duplicates": 3}
    assert stored(server, "once") == [1, {"n": 2}, 3]


def test_queue_with_an_at_sign_is_not_taken_for_another_one(server: RunningServer) -> None:
    done = push(server.url, "ops@example.org", "1")
    assert done.returncode == 1
    assert b"a push is for all groups: leave '@example.org' out" in done.stderr
    assert b"Traceback" not in done.stderr
    with pytest.raises(urllib.error.HTTPError, match="404"):
        stored(server, "ops")


def test_lines_that_are_large_together_are_pushed_in_several_requests(server: RunningServer, tmp_path: Path) -> None:
    line = b'"' + b"x" * (96 * MEBIBYTE // 10) + b'"\n'
    file = tmp_path / "large.ndjson"
    file.write_bytes(line * 7)
    assert len(line) * 7 > 64 * MEBIBYTE
    done = push(server.url, "large", "--file", str(file))
    assert (done.returncode, done.stdout) == (0, b"pushed 7 messages\n"), done.stderr


def test_bad_line_of_a_later_request_tells_what_was_pushed_before(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"1\n\n2\n3\n4\n5\n{\n7\n")
    done = push(server.url, "partly", "--file", str(file), "--batch", "2")
    assert done.returncode == 1
    assert b"events.ndjson line 7 is not JSON" in done.stderr
    assert b"4 messages were pushed before; go on from line 6" in done.stderr
    assert stored(server, "partly") == [1, 2, 3, 4]


def test_request_that_is_refused_names_its_lines_and_what_was_pushed_before(server: RunningServer) -> None:
    lines = b'{"queue": "refused", "payload": 1}\n' * 3 + b'{"payload": 4}\n'
    done = push(server.url, "--items", "--batch", "2", stdin=lines)
    assert done.returncode == 1
    assert b"stdin lines 3 to 4: the server refused the request (400)" in done.stderr
    assert b"2 messages were pushed before; go on from line 3" in done.stderr
    assert stored(server, "refused") == [1, 1]


def test_request_without_an_answer_is_said_to_be_open() -> None:
    done = push("http://127.0.0.1:9", "nowhere", stdin=b"1\n2\n")
    assert done.returncode == 1
    assert b"stdin lines 1 to 2: POST /api/v1/push failed" in done.stderr
    assert b"0 messages were pushed before; go on from line 1" in done.stderr
    assert b"Lines 1 to 2 may be stored or not" in done.stderr


def test_payload_and_a_file_are_not_taken_together(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"1\n")
    done = push(server.url, "both", "2", "--file", str(file))
    assert done.returncode == 2
    assert b"either JSON or --file" in done.stderr


@pytest.mark.parametrize("words", [(), ("--text",)])
def test_bytes_that_are_no_text_are_refused_as_they_were_typed(server: RunningServer, words: tuple[str, ...]) -> None:
    done = push(server.url, "typed", b'"\xff"', *words)
    assert done.returncode == 1
    assert done.stderr.startswith(b"forebay: error: the argument is not UTF-8 at byte 1\n")
    assert push(server.url, "typed", '"\u00fc"'.encode()).returncode == 0
    assert stored(server, "typed")[-1] == "\u00fc"
