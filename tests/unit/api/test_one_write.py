"""The head of an answer leaves with its body, and nothing is ever held back for good."""

from __future__ import annotations

from typing import Any

from forebay.api.one_write import _Joining

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Recorder:
    """A transport that writes down what it is told."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str) -> str:
        return f"info of {name}"


def joined() -> tuple[Recorder, Any]:
    recorder = Recorder()
    return recorder, _Joining(recorder)  # type: ignore[arg-type]  # it has what is called


def test_head_and_body_leave_in_one_write() -> None:
    recorder, transport = joined()
    transport.write(HEAD)
    assert recorder.writes == []
    transport.write(b"{}")
    assert recorder.writes == [HEAD + b"{}"]


def test_answer_without_a_body_leaves_with_its_empty_body() -> None:
    recorder, transport = joined()
    transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    transport.write(b"")
    assert recorder.writes == [b"HTTP/1.1 204 No Content\r\n\r\n"]


def test_parts_of_a_stream_are_not_held_back() -> None:
    recorder, transport = joined()
    for part in (HEAD, b"2\r\nab\r\n", b"2\r\ncd\r\n", b"0\r\n\r\n"):
        transport.write(part)
    assert recorder.writes == [HEAD + b"2\r\nab\r\n", b"2\r\ncd\r\n", b"0\r\n\r\n"]


def test_continue_is_told_at_once_because_the_client_waits_for_it() -> None:
    recorder, transport = joined()
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert recorder.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_what_is_held_back_leaves_before_the_connection_closes() -> None:
    recorder, transport = joined()
    transport.write(HEAD)
    transport.close()
    assert recorder.writes == [HEAD]
    assert transport.is_closing()
    assert transport.get_extra_info("peername") == "info of peername"
