"""Reading and writing over HTTP when servers break: rows come once, refusals are final, patience ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from forebay.errors import Permanent
from forebay.spark.options import Connection
from forebay.spark.positions import Bounds, Position, SeqRange
from forebay.spark.queues import MessagesGone, Queue
from forebay.spark.server_calls import ServerCalls, ServerRefused, ServersAway
from forebay.testing.fake_clock import FakeClock

Answer = tuple[int, bytes]
LAST_SEQ = 30


class Scripted:
    """A server that answers as the test says: one function from the request to status and body."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[str], Answer | None] = lambda path: (200, b"{}")
        """None cuts the connection without an answer."""
        self.cut_at: int | None = None
        """Where the next answer is cut; then the connection breaks in the middle."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def handle_any(self) -> None:
                outer.asked.append(f"{self.command} {self.path}")
                outer.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                told = outer.answer(self.path)
                self.close_connection = True
                if told is None:
                    return
                status, body = told
                cut_at, outer.cut_at = outer.cut_at, None
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                part = body[:cut_at]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) + (b"0\r\n\r\n" if cut_at is None else b""))

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()


def queue_at(*urls: str, retry_seconds: float = 60) -> tuple[Queue, FakeClock]:
    """A queue whose waiting turns a clock instead of sleeping."""
    clock = FakeClock()
    wire = ServerCalls(Connection(urls, None, retry_seconds), clock=clock, sleep=clock.advance)
    return Queue(wire, "a queue/x"), clock


def rows(path: str) -> Answer:
    """Rows `from` to `to`, three to a batch, as the server streams them."""
    query = parse_qs(urlsplit(path).query)
    first, last = int(query["from"][0]), min(int(query["to"][0]), LAST_SEQ)
    body = pa.BufferOutputStream()
    with pa.ipc.new_stream(body, pa.schema([("seq", pa.int64()), ("payload", pa.binary())])) as stream:
        for start in range(first, last + 1, 3):
            seqs = list(range(start, min(start + 3, last + 1)))
            stream.write_batch(pa.RecordBatch.from_pydict({"seq": seqs, "payload": [b"%d" % seq for seq in seqs]}))
    return 200, body.getvalue().to_pybytes()


def seqs(queue: Queue, start: int = 1, end: int = LAST_SEQ + 1, **more: Any) -> list[int]:
    return [seq for batch in queue.batches(SeqRange(start, end), **more) for seq in batch["seq"].to_pylist()]


def test_every_cut_of_an_answer_is_noticed_and_no_row_is_lost_or_doubled(server: Scripted) -> None:
    server.answer = rows
    size = len(rows("?from=1&to=30")[1])
    for cut_at in [*range(0, size, 61), size - 8, size - 4, size - 1]:
        server.cut_at = cut_at
        queue, _ = queue_at(server.url)
        assert seqs(queue) == list(range(1, LAST_SEQ + 1)), cut_at
        assert server.cut_at is None


def test_answer_that_ends_well_but_without_the_end_marker_counts_as_cut(server: Scripted) -> None:
    answers = [(200, rows("?from=1&to=15")[1][:-8]), rows("?from=16&to=30")]
    server.answer = lambda path: answers.pop(0)
    queue, _ = queue_at(server.url)
    assert seqs(queue) == list(range(1, LAST_SEQ + 1))
    assert ["from=1&" in server.asked[0], "from=16&" in server.asked[1]] == [True, True]


def test_path_and_filters_are_quoted(server: Scripted) -> None:
    server.answer = rows
    queue, _ = queue_at(server.url)
    assert seqs(queue, 4, 6, query=[("partition", "a b&c")]) == [4, 5]
    assert server.asked == ["GET /api/v1/arrow/queues/a%20queue%2Fx?from=4&to=5&partition=a+b%26c"]


def test_server_that_comes_back_in_time_is_waited_for(server: Scripted) -> None:
    answers: list[Answer | None] = [None, (503, b"not json"), (429, b'{"detail":"full"}'), (200, b'{"stage":"s"}')]
    server.answer = lambda path: answers.pop(0)
    queue, _ = queue_at(server.url)
    assert queue.stage(pa.py_buffer(b"rows"), "p", "1", "0") == "s"
    assert server.bodies == [b"rows"] * 4


def test_patience_ends_after_retry_timeout(server: Scripted) -> None:
    server.answer = lambda path: (503, b'{"detail":"stopping"}')
    queue, clock = queue_at(server.url, retry_seconds=60)
    with pytest.raises(
        ServersAway, match=r"failed for 60 s, last: http://127\.0\.0\.1:\d+/.*503 stopping.*retryTimeout"
    ):
        queue.bounds()
    assert clock.monotonic() == pytest.approx(60)


def test_progress_renews_patience(server: Scripted) -> None:
    def one_batch_then_break(path: str) -> Answer | None:
        server.cut_at = 700
        return rows(path) if len(server.asked) % 5 == 0 else None

    server.answer = one_batch_then_break
    queue, clock = queue_at(server.url, retry_seconds=3)
    assert seqs(queue) == list(range(1, LAST_SEQ + 1))
    assert clock.monotonic() > 3


def test_next_server_is_asked_and_stays_chosen(server: Scripted) -> None:
    server.answer = lambda path: (200, b'{"firstSeq":1,"nextSeq":5}')
    queue, clock = queue_at("http://127.0.0.1:1", server.url)
    assert queue.bounds().next_seq == 5
    before = clock.monotonic()
    assert queue.bounds().next_seq == 5
    assert clock.monotonic() == before


def test_each_server_is_tried_once_and_the_one_that_answered_first_the_next_time(server: Scripted) -> None:
    wire = ServerCalls(Connection(("http://127.0.0.1:1", server.url)))
    assert wire.request_once("POST", "/lease", b"{}") == b"{}"
    server.answer = lambda path: None
    with pytest.raises(ServersAway):
        wire.request_once("POST", "/lease", b"{}")
    assert server.asked == ["POST /lease", "POST /lease"]


def test_refusal_is_final(server: Scripted) -> None:
    server.answer = lambda path: (403, b'{"detail":"not with this key","code":"forbidden"}')
    queue, _ = queue_at(server.url)
    with pytest.raises(ServerRefused, match=r"http://127\.0\.0\.1:\d+/.* refused \(403\): not with this key"):
        seqs(queue)
    assert len(server.asked) == 1


def test_unknown_queue_is_told_by_name(server: Scripted) -> None:
    server.answer = lambda path: (404, b'{"detail":"x","code":"unknown_queue"}')
    with pytest.raises(Permanent, match=r"no queue 'a queue/x'\. A queue is made by"):
        queue_at(server.url)[0].bounds()


def test_url_with_a_wrong_path_is_told_and_is_no_missing_queue(server: Scripted) -> None:
    for body in (b'{"code":"not_found","detail":"nothing here"}', b"<html>a proxy</html>"):
        server.answer = lambda path, body=body: (404, body)  # type: ignore[misc]
        with pytest.raises(ServerRefused, match=rf"{server.url}/prefix/api/v1/.* refused \(404\)"):
            queue_at(f"{server.url}/prefix")[0].bounds()


def test_server_that_cannot_be_reached_is_named(server: Scripted) -> None:
    url = server.url
    server.answer = lambda path: None
    queue, _ = queue_at(url, retry_seconds=1)
    with pytest.raises(ServersAway, match=rf"last: {url}: "):
        queue.bounds()
    with pytest.raises(ServersAway, match=rf"reading .* from seq 1 failed for 1 s, last: {url}: "):
        seqs(queue, 1, 5)


def gone_below_ten(path: str) -> Answer:
    if int(parse_qs(urlsplit(path).query)["from"][0]) < 10:
        return 410, json.dumps({"code": "range_gone", "firstSeq": 10, "detail": "gone"}).encode()
    return rows(path)


def test_lost_messages_are_told_exactly(server: Scripted) -> None:
    server.answer = gone_below_ten
    with pytest.raises(MessagesGone, match=r"messages 4-9 of queue .* are gone.*failOnDataLoss=false") as gone:
        seqs(queue_at(server.url)[0], 4)
    assert gone.value.gone == SeqRange(4, 10)


def test_lost_messages_are_skipped_and_logged_when_told_so(server: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    server.answer = gone_below_ten
    assert seqs(queue_at(server.url)[0], 4, is_loss_fatal=False) == list(range(10, LAST_SEQ + 1))
    assert "messages 4-9 are gone and were skipped" in caplog.text
    assert seqs(queue_at(server.url)[0], 4, 8, is_loss_fatal=False) == []
    assert "messages 4-7 are gone" in caplog.text


def test_time_is_asked_for_only_where_there_is_one(server: Scripted) -> None:
    server.answer = lambda path: (200, b'{"firstSeq":1,"nextSeq":5,"seqAtTime":3,"bytes":7}')
    queue, _ = queue_at(server.url)
    assert queue.bounds(Position(time="2026-01-01T00:00:00Z")) == Bounds(1, 5, 3, 7)
    queue.bounds(Position(word="latest"))
    assert [path.partition("?")[2] for path in server.asked] == ["time=2026-01-01T00%3A00%3A00Z", ""]


def test_api_key_is_sent(server: Scripted) -> None:
    queue = Queue(ServerCalls(Connection((f"{server.url}/behind/a/proxy",), "secret")), "q")
    server.answer = lambda path: (200, b'{"removed":0}')
    queue.abort("spark:1", "2")
    assert server.asked == ["DELETE /behind/a/proxy/api/v1/arrow/stages?producer=spark%3A1&epoch=2&write=&queue=q"]
