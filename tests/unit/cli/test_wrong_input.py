"""Wrong words and wrong lines end with one line that says what is wrong, and never as a bug of Forebay."""

from __future__ import annotations

import io
import sys

import pytest

from forebay.cli.app import run

NOBODY = "http://127.0.0.1:9"


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The line that says what is wrong."""
    code = run(words)
    said = capsys.readouterr().err
    assert (code, "Traceback" in said) == (1, False), said
    return said.splitlines()[0]


@pytest.mark.parametrize("words", [("push", "{}", "1"), ("pop", "{}"), ("tail", "{}")])
@pytest.mark.parametrize("address", ["q@", "/", "/p", "q/"])
def test_address_that_is_none_is_named(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], address: str
) -> None:
    said = refusal(capsys, *(word.format(address) for word in words), "--url", NOBODY)
    assert said.startswith(f"forebay: error: {address!r} is no address; it is queue, queue/partition")


@pytest.mark.parametrize("words", [("push", "\udcff", "1"), ("pop", "\udcff"), ("tail", "\udcff")])
def test_name_that_is_no_text_is_named(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert refusal(capsys, *words, "--url", NOBODY) == r"forebay: error: '\udcff' is not UTF-8"


@pytest.mark.parametrize("words", [("list",), ("replay",), ("purge",)])
def test_filter_that_is_no_text_is_named(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    said = refusal(capsys, "dlq", *words, "--queue", "\udcff", "--url", NOBODY)
    assert said == r"forebay: error: '\udcff' is not UTF-8"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("foo", "it begins with neither http:// nor https://"),
        ("http://", "it names no host"),
        ("http://127.0.0.1:99999", "its port is no number from 1 to 65535"),
        ("http://127.0.0.1:0", "its port is no number from 1 to 65535"),
        ("http://127.0.0.1:x", "its port is no number from 1 to 65535"),
        ("http://[::1", "it names no host"),
        ("http://a..b", "it names no host"),
        ("http://127.0.0.1:9/a b", "it has blanks or characters that cannot be printed"),
        ("http://127.0.0.1:9/\udcff", "it has blanks or characters that cannot be printed"),
    ],
)
@pytest.mark.parametrize("words", [("push", "q", "1"), ("queues",), ("tail", "q")])
def test_url_that_is_none_is_named(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], url: str, fault: str
) -> None:
    said = refusal(capsys, *words, "--url", url)
    shown = repr(url)
    assert said == f"forebay: error: {shown} is no server's URL: {fault}; it looks like http://127.0.0.1:6632"


@pytest.mark.parametrize(
    ("line", "words", "fault"),
    [
        (b'"\xff"', ("q",), "stdin line 2 is not UTF-8 at byte 1"),
        (b"caf\xe9", ("q", "--text"), "stdin line 2 is not UTF-8 at byte 3"),
        (b'{"queue": "q", "payload": "\xff"}', ("--items",), "stdin line 2 is not UTF-8 at byte 27"),
        (b"[" * 100_000 + b"]" * 100_000, ("q",), "stdin line 2 is nested too deeply"),
        (b'{"queue": "q", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ("--items",),
         "stdin line 2 is nested too deeply"),
        (b"7", ("--items",), "stdin line 2 is no item: Expected `object`, got `int`"),
    ],
)  # fmt: skip
def test_line_that_cannot_be_pushed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: bytes, words: tuple[str, ...], fault: str
) -> None:
    good = b'{"queue": "q", "payload": 1}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(good + line + b"\n")))
    assert refusal(capsys, "push", *words, "--url", NOBODY) == f"forebay: error: {fault}"
