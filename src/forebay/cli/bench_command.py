"""`forebay bench`: figures from this machine, each beside a peer or a ceiling measured in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from forebay.bench import commitlog as commitlog_suite
from forebay.bench.harness import Figure, machine
from forebay.cli import output
from forebay.cli.output import ExitCode, Format, OutputOption

app = typer.Typer(help="Measure Forebay on this machine, beside its peers.")

Rounds = Annotated[int, typer.Option("--rounds", min=3, max=1000, help="Rounds per figure; the median counts.")]
Directory = Annotated[
    Path,
    typer.Option(
        "--directory",
        exists=True,
        file_okay=False,
        writable=True,
        help="Where to write: a directory on the disk to measure.",
    ),
]
Scale = Annotated[float, typer.Option("--scale", min=0.01, max=100, help="Work per round; 1 is what goals are for.")]


@app.callback()
def suites() -> None:
    """Each suite is a command."""


@app.command()
def commitlog(
    rounds: Rounds = 7,
    directory: Directory = Path(),
    scale: Scale = 1.0,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """The commit log beside the raw disk, SQLite and persist-queue. Exits with 1 if a goal is missed."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory) as scratch:
        _report("commitlog", commitlog_suite.suite(Path(scratch), rounds=rounds, scale=scale), output_format)


def _report(suite: str, figures: Iterator[Figure], output_format: Format) -> None:
    described = machine()
    found = []
    for figure in figures:
        found.append(figure)
        output.tell(f"{'holds ' if figure.holds else 'MISSED'}  {figure.ratio:>7}  {figure.name} / {figure.against}")
    if output_format is Format.JSON:
        results = [figure.document() for figure in found]
        output.show_json({"suite": suite, "machine": described, "results": results})
    else:
        columns = ("figure", "value", "unit", "against", "its value", "ratio", "goal", "holds")
        rows = [
            (f.name, f"{f.value:,.0f}", f.unit, f.against, f"{f.against_value:,.0f}", f.ratio, f.goal, _yes(f.holds))
            for f in found
        ]
        output.show_table(columns, rows, right=("value", "its value", "ratio", "goal"))
    if not all(figure.holds for figure in found):
        raise typer.Exit(ExitCode.REFUSED)


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"
