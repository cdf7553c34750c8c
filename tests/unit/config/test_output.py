"""Printing: data on stdout, the rest on stderr, and no value that steers the terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forebay.cli import output
from forebay.errors import ForebayError


def test_json_is_sorted_indented_and_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json({"b": Path("x"), "a": ["ü", datetime(2026, 1, 2, tzinfo=UTC)]})
    text = capsys.readouterr().out
    assert text.startswith('{\n  "a": [')
    assert text.isascii()
    assert json.loads(text) == {"a": ["ü", "2026-01-02T00:00:00+00:00"], "b": "x"}


@pytest.mark.parametrize("document", [object(), float("nan")])
def test_what_has_no_json_form_is_not_guessed(document: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        output.show_json(document)


def test_table_keeps_one_line_per_row_when_no_terminal_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("key", "bytes"), [("x" * 300, 7), ("y", 12345)], right=("bytes",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["key", "bytes"]
    assert [line.split() for line in lines[2:]] == [["x" * 300, "7"], ["y", "12345"]]
    assert len(lines[2]) == len(lines[3])
    assert not any(line.endswith(" ") for line in lines)


def test_table_shows_values_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(("value",), [("[red]plain[/red]",), ("a\x1b[31mb\nc\udcff",)])
    shown = capsys.readouterr().out
    assert "[red]plain[/red]" in shown
    assert r"a\x1b[31mb\nc\udcff" in shown


def test_progress_is_silent_when_no_terminal_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("reading", total=3) as advance:
        advance(1)
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_failure_names_the_error_and_its_remedy_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.fail(ForebayError("the gate is stuck", remedy="Oil it"))
    assert capsys.readouterr() == ("", "forebay: error: the gate is stuck\n  Oil it\n")
