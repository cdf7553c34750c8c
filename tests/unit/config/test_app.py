"""The command table: listed without being loaded, and every way out of a command has its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.cli.app import COMMANDS, Command, help_text, root_command, run, spelled_for

TROUBLE = """
import typer
from forebay.errors import ForebayError, InvariantBroken

app = typer.Typer()

@app.command()
def fine(size: int = 1, loud: bool = False) -> None:
    typer.echo(f"size {size} loud {loud}")

@app.command()
def refused() -> None:
    raise ForebayError("the gate is stuck", remedy="Oil it")

@app.command()
def broken() -> None:
    raise InvariantBroken("7 is not 8")

@app.command()
def surprised() -> None:
    raise RuntimeError("nobody expected this")

@app.command()
def interrupted() -> None:
    raise KeyboardInterrupt

@app.command()
def seven() -> None:
    raise typer.Exit(7)

def alone(name: str) -> None:
    typer.echo(f"hello {name}")
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Command, ...]:
    (tmp_path / "forebay_trouble.py").write_text(TROUBLE)
    monkeypatch.syspath_prepend(tmp_path)
    return (
        Command("trouble", "forebay_trouble:app", "Run into trouble.", "Made up"),
        Command("alone", "forebay_trouble:alone", "Stand alone.", "Made up"),
        Command("missing", "forebay_nowhere:app", "Not there.", "Made up"),
    )


@pytest.mark.parametrize(
    ("line", "code", "stdout", "stderr"),
    [
        ("trouble fine", 0, "size 1 loud False", ""),
        ("trouble fine -size=3 -loud=true", 0, "size 3 loud True", ""),
        ("alone Ada", 0, "hello Ada", ""),
        ("trouble seven", 7, "", ""),
        ("trouble refused", 1, "", "forebay: error: the gate is stuck\n  Oil it\n"),
        ("trouble interrupted", 130, "", "forebay: interrupted\n"),
        ("trouble broken", 70, "", "forebay: BUG: InvariantBroken: 7 is not 8\n"),
        ("trouble surprised", 70, "", "forebay: BUG: RuntimeError: nobody expected this\n"),
        ("trouble surprised", 70, "", "Traceback (most recent call last)"),
        ("missing", 70, "", "forebay: BUG: ModuleNotFoundError"),
        ("troubl", 2, "", "forebay: error: No such command 'troubl'. Did you mean 'trouble'?"),
        ("trouble fin", 2, "", "Help: forebay trouble --help"),
        ("trouble fine -siz 3", 2, "", "forebay: error: No such option: --siz"),
        ("trouble fine --size many", 2, "", "forebay: error: Invalid value for '--size'"),
        ("trouble fine --size", 2, "", "Help: forebay trouble fine --help"),
        ("alone", 2, "", "Usage: forebay alone"),
    ],
)
def test_every_way_out_has_its_exit_code_and_message(
    commands: tuple[Command, ...], capsys: pytest.CaptureFixture[str], line: str, code: int, stdout: str, stderr: str
) -> None:
    assert run(line.split(), commands) == code
    printed = capsys.readouterr()
    assert printed.out.strip() == stdout
    assert stderr in printed.err
    assert bool(printed.err) == bool(stderr)


@pytest.mark.parametrize("line", ["", "-h", "--help", "-help"])
def test_help_lists_the_table_without_loading_any_command(
    commands: tuple[Command, ...], capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert run(line.split(), commands) == 0
    printed = capsys.readouterr().out
    assert "missing  Not there." in printed
    assert "Made up:" in printed


def test_group_without_a_command_shows_its_help(
    commands: tuple[Command, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trouble"], commands) == 0
    assert "surprised" in capsys.readouterr().out


def test_words_of_unknown_commands_are_passed_on_untouched() -> None:
    assert spelled_for(root_command(), ["nope", "-profile", "x"]) == (["nope", "-profile", "x"], "forebay")


def test_every_command_is_in_the_help_text_with_its_line() -> None:
    text = help_text()
    for command in COMMANDS:
        assert f"{command.name}" in text
        assert command.help in text
    assert "\033" not in text
    assert "\033[1mUsage:\033[0m" in help_text(bold=True)


def test_help_fits_a_terminal_of_100_columns() -> None:
    assert max(len(line) for line in help_text().splitlines()) <= 100
