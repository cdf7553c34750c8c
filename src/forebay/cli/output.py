"""The one place that prints. Commands hand over data; here it becomes a table for people or JSON for programs.

Data goes to stdout, everything else (progress, errors) to stderr, so that `forebay … -o json | jq` always works.
A progress bar is drawn on a terminal only. Tables keep one row per line when stdout is no terminal, so that `grep`
finds whole rows.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something is damaged, wrong or refused; the message says what, and the remedy where there is one |
| 2 | usage: no such command or option |
| 70 | a bug in Forebay; the traceback follows |
| 130 | interrupted with Ctrl-C |
| 141 | the reader of stdout went away (`| head`) |

`rich` is imported where it draws: JSON, `--version` and `--help` never wait for it.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from forebay.errors import ForebayError

# A row that is wider than this is folded even when stdout is a file; no table of ours comes near it.
UNBOUNDED_COLUMNS = 10_000


class ExitCode(IntEnum):
    """What the shell sees. The table in the module's docstring is the contract."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    BUG = 70
    INTERRUPTED = 130
    READER_GONE = 141


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Format, typer.Option("-o", "--output", help="A table for people, JSON for programs.", show_default=True)
]


def say(line: str = "") -> None:
    """Print one line of a command's result on stdout."""
    with _output_refusals():
        sys.stdout.write(line + "\n")


def finish() -> None:
    """Hand the last of the output over; a full disk behind `> file` is noticed here at the latest."""
    with _output_refusals():
        sys.stdout.flush()


@contextmanager
def _output_refusals() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise ForebayError(f"cannot write the output: {error.strerror}") from error


def tell(line: str = "") -> None:
    """Print one line for the person at the keyboard on stderr; programs that read stdout never see it."""
    finish()  # where both go to one file, what was said first stands first
    sys.stderr.write(line + "\n")


def show_json(document: object) -> None:
    """Print one JSON document: sorted keys, two spaces, ASCII only, so that every terminal and parser takes it."""
    say(json.dumps(document, indent=2, sort_keys=True, allow_nan=False, default=_json_form))


def _json_form(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form; the command has to choose one")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
) -> None:
    """Print rows under column heads; columns named in `right` are aligned to the right, as numbers want to be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Cells are Text, never markup: a value such as `[red]` is shown as it stands.
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title and Text(title), title_justify="left"
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_printable(str(cell))) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED_COLUMNS, highlight=False)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().strip("\n").splitlines():
        say(line.rstrip())


def _printable(text: str) -> str:
    """Control characters and lone surrogates are shown escaped: a value must not steer the terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@contextmanager
def progress(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Yield `advance(amount)`. Draws a bar on stderr when that is a terminal, else nothing; `total` None: unknown."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)


def fail(error: ForebayError) -> None:
    """Say what was refused and what helps. The command ends with exit code 1."""
    tell(f"forebay: error: {error.message}")
    if error.remedy:
        tell(f"  {error.remedy}")


def fail_usage(message: str, *, usage: str, help_command: str) -> None:
    """Say what is wrong with the command line. The command ends with exit code 2."""
    tell(f"forebay: error: {message}")
    tell(f"  {usage}")
    tell(f"  Help: {help_command}")


def report_bug(error: BaseException) -> None:
    """Show an exception that was not raised on purpose. The command ends with exit code 70."""
    text = str(error).removeprefix("BUG: ") or "no message"
    tell(f"forebay: BUG: {type(error).__name__}: {text}")
    tell("  Nothing you typed should lead here. Please report it together with what follows:")
    tell("".join(traceback.format_exception(error)).rstrip("\n"))


def print_anywhere() -> None:
    """Let neither a closed stream nor a character end a command: what the encoding lacks is printed escaped."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - stays open as long as the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Send the rest of stdout nowhere, or the interpreter would complain about it once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
