"""`forebay bench`: figures from this machine, each beside a peer or a ceiling measured in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from forebay.bench import commitlog as commitlog_suite
from forebay.bench import sendqueue as sendqueue_suite
from forebay.bench.broker import suite as broker_suite
from forebay.bench.broker.plan import PEERS, Plan
from forebay.bench.harness import Figure, machine
from forebay.bench.ingest import suite as ingest_suite
from forebay.bench.ingest.plan import Plan as IngestPlan
from forebay.bench.sendqueue import SendQueuePlan
from forebay.bench.spark.plan import Plan as SparkPlan
from forebay.cli import output
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.config.units import parse_size

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

BACKLOG_MIN = 100_000
BACKLOG_MAX = 10_000_000_000
MESSAGES_MIN = 1_000
MESSAGES_MAX = 10_000_000_000


def _count(lowest: int, highest: int) -> Callable[[str], int]:
    """What reads a number such as 10M between these two."""

    def read(text: str) -> int:
        try:
            count = parse_size(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if not lowest <= count <= highest:
            raise typer.BadParameter(f"{count:,} is not between {lowest:,} and {highest:,}")
        return count

    return read


def _peer(text: str) -> str:
    if text not in PEERS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(PEERS)}")
    return text


RoundsOrDefault = Annotated[
    int | None,
    typer.Option(
        "--rounds", min=2, max=1000, help="Rounds per figure; the median counts.", show_default="7; 2 with --quick"
    ),
]
Backlog = Annotated[
    int | None,
    typer.Option(
        "--backlog",
        metavar="COUNT",
        parser=_count(BACKLOG_MIN, BACKLOG_MAX),
        help="Messages of the big backlog, such as 10M.",
        show_default="10M; 200k with --quick",
    ),
]
SparkRounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", min=2, max=1000, help="Rounds per figure; the median counts.", show_default="5; fewer with --quick"
    ),
]
Messages = Annotated[
    int | None,
    typer.Option(
        "--messages",
        metavar="COUNT",
        parser=_count(MESSAGES_MIN, MESSAGES_MAX),
        help="Messages of 200 bytes in the queue.",
        show_default="1M; 20k with --quick",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Try it out: all of it, but small. Its figures mean little.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="|".join(PEERS), parser=_peer, help="Leave this peer out. May be given several times."
    ),
]


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


@app.command()
def broker(
    rounds: RoundsOrDefault = None,
    directory: Directory = Path(),
    backlog: Backlog = None,
    quick: Quick = False,
    without: Without = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """The broker beside Valkey, PostgreSQL, JetStream and RabbitMQ. Exits with 1 if a goal is missed."""
    kind = Plan.quick if quick else Plan
    given = {name: value for name, value in (("rounds", rounds), ("backlog", backlog)) if value is not None}
    left_out = sorted(set(without or ()))
    plan = kind(**given, without=frozenset(left_out))
    # The suite is closed at once when interrupted, so that no server still writes while its directory is removed.
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(broker_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("broker", figures, output_format, without=left_out)


@app.command()
def spark(
    rounds: SparkRounds = None,
    messages: Messages = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Spark on queues beside Spark on parquet files. Exits with 1 if a goal is missed."""
    # Imported here: it imports PySpark, for which no other command has to wait.
    from forebay.bench.spark import suite as spark_suite

    kind = SparkPlan.quick if quick else SparkPlan
    plan = kind(**{name: value for name, value in (("rounds", rounds), ("messages", messages)) if value is not None})
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(spark_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("spark", figures, output_format)


@app.command()
def ingest(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Buffered pushes, outages and recovery on PostgreSQL. Exits with 1 if a goal is missed."""
    kind = IngestPlan.quick if quick else IngestPlan
    plan = kind() if rounds is None else kind(rounds)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(ingest_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("ingest", figures, output_format)


@app.command()
def sendqueue(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """The send queue beside queue.Queue, the raw disk and persist-queue. Exits with 1 if a goal is missed."""
    kind = SendQueuePlan.quick if quick else SendQueuePlan
    plan = kind() if rounds is None else kind(rounds)
    with tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch:
        _report("sendqueue", sendqueue_suite.suite(Path(scratch), plan, output.tell), output_format)


@app.command()
def export(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Exporters beside a bare HTTP loop and the sizing formula. Exits with 1 if a goal is missed."""
    # Imported here: it imports OpenTelemetry's protobufs, for which no other command has to wait.
    from forebay.bench.export import suite as export_suite

    kind = export_suite.ExportPlan.quick if quick else export_suite.ExportPlan
    plan = kind() if rounds is None else kind(rounds)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(export_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("export", figures, output_format)


@app.command()
def dispatch(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Parcels through dispatch beside a bare loop on Valkey. Exits with 1 if a goal is missed."""
    # Imported here: it imports PostgreSQL's and Valkey's clients, for which no other command has to wait.
    from forebay.bench.dispatch import suite as dispatch_suite

    kind = dispatch_suite.DispatchPlan.quick if quick else dispatch_suite.DispatchPlan
    plan = kind() if rounds is None else kind(rounds)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(dispatch_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("dispatch", figures, output_format)


@app.command()
def flows(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Flows on parcels beside files, streams, one another and a clock. Exits with 1 if a goal is missed."""
    # Imported here: it imports PySpark, for which no other command has to wait.
    from forebay.bench.flows import suite as flows_suite
    from forebay.bench.flows.plan import FlowsPlan

    kind = FlowsPlan.quick if quick else FlowsPlan
    plan = kind() if rounds is None else kind(rounds)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(flows_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("flows", figures, output_format)


@app.command()
def page(
    rounds: SparkRounds = None,
    directory: Directory = Path(),
    quick: Quick = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """The web page: first paint, what polling costs, and /metrics. Exits with 1 if a goal is missed."""
    # Imported here: it imports clients of servers for tests, for which no other command has to wait.
    from forebay.bench import page as page_suite

    kind = page_suite.PagePlan.quick if quick else page_suite.PagePlan
    plan = kind() if rounds is None else kind(rounds)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=directory.absolute()) as scratch,
        closing(page_suite.suite(Path(scratch), plan, output.tell)) as figures,
    ):
        _report("page", figures, output_format)


def _report(
    suite: str, figures: Iterator[Figure], output_format: Format, *, without: Sequence[str] | None = None
) -> None:
    described = machine()
    found = []
    for figure in figures:
        found.append(figure)
        output.tell(f"{_verdict(figure)}  {figure.ratio:>7}  {figure.name} / {figure.against}")
    if output_format is Format.JSON:
        results = [figure.document() for figure in found]
        left_out = {} if without is None else {"without": without}
        output.show_json({"suite": suite, "machine": described, **left_out, "results": results})
    else:
        columns = ("figure", "value", "unit", "against", "its value", "ratio", "goal", "holds")
        rows = [
            (f.name, _short(f.value), f.unit, f.against, _short(f.against_value), f.ratio, f.goal or "", _yes(f))
            for f in found
        ]
        output.show_table(columns, rows, right=("value", "its value", "ratio", "goal"))
        if without:
            output.say(f"left out: {', '.join(without)}")
    if not all(figure.holds for figure in found):
        raise typer.Exit(ExitCode.REFUSED)


def _verdict(figure: Figure) -> str:
    if not figure.goal:
        return "beside"
    return "holds " if figure.holds else "MISSED"


def _short(value: float) -> str:
    """Rates without decimals, milliseconds with them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _yes(figure: Figure) -> str:
    if not figure.goal:
        return ""
    return "yes" if figure.holds else "NO"
