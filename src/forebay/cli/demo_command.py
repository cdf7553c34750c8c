"""`forebay demo`: see it work, in a directory of its own; what it does is described in `forebay.cli.demo`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli import output
from forebay.cli.demo.result import Audit, Comparison, DemoResult
from forebay.cli.output import ExitCode, Format, OutputOption

PREFIX = "forebay-demo-"


def demo(
    messages: Annotated[
        int, typer.Option("--messages", min=1000, max=2_000_000, help="Click events to push.")
    ] = 200_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the directory with data and flows, to look at.")] = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """See Forebay work: clicks through queues and Spark to a destination, all of them killed or away, nothing lost."""
    # Imported here: it imports a web server and OpenTelemetry's protobufs, for which `--help` does not have to wait.
    from forebay.cli.demo.story import run

    with _directory(keep) as directory:
        result = asyncio.run(run(directory, messages))
    if keep:
        output.tell(f"everything stays in {directory}; there, `forebay up -c forebay.yaml` goes on")
    show_result(result, output_format)


def show_result(result: DemoResult, output_format: Format) -> None:
    """Print it. Ends with exit code 1 if anything is wrong with it."""
    complaints = result.complaints()
    if output_format is Format.JSON:
        totals = {"lost": result.lost, "duplicated": result.duplicated, "wrong": result.wrong}
        output.show_json({**asdict(result), **totals, "complaints": complaints})
    else:
        _show(result)
    for complaint in complaints:
        output.tell(f"forebay: error: {complaint}")
    if complaints:
        raise typer.Exit(ExitCode.REFUSED)


@contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix=PREFIX))
        return
    with tempfile.TemporaryDirectory(prefix=PREFIX) as scratch:
        yield Path(scratch)


def _of_all(found: Comparison) -> str:
    """Here the event that ends the last minute counts as a click too: one more than was requested is all of them."""
    return f"{found.found:,} of {found.expected:,} clicks, with the closing one"


def _show(result: DemoResult) -> None:
    pushing, delivery = result.pushing, result.delivery
    rows = [
        ("accepted, each durable", f"{pushing.accepted:,} clicks"),
        ("  before the server was killed with -9", f"{pushing.accepted_before_kill:,} clicks"),
        ("  durable, but the kill took the answer", f"{pushing.repeated:,} clicks"),
        ("processed: parsed, joined, in a queue", f"{result.joined.found:,} clicks"),
        ("delivered: per minute and region, in a queue", _delivered(result.per_minute)),
        ("delivered: the same, in Parquet", _delivered(result.parquet)),
        ("processed: enriched, scored, in a queue", _of_all(result.scored)),
        ("delivered: the same, over HTTP, counted by key", _of_all(delivery.clicks)),
        ("  sent again, after an answer was lost", f"{delivery.sent_again:,} clicks"),
        ("delivered: metrics, by remote write", f"{delivery.samples.found:,} of {delivery.samples.expected:,} samples"),
        ("lost", f"{result.lost:,}"),
        ("duplicated", f"{result.duplicated:,}"),
        ("wrong", f"{result.wrong:,}"),
        ("parcels", ", ".join(f"{count:,} {state}" for state, count in sorted(result.parcels.items()))),
        ("forebay audit", _audited(result.audit)),
        ("pushed, while Spark started", f"{pushing.clicks_per_second:,.0f} clicks/s"),
        ("Spark was ready after", f"{result.spark_start_seconds:.1f} s"),
        ("the backlog joined, from then on", f"{result.backlog_clicks_per_second:,.0f} clicks/s"),
        ("the server answered again after the kill in", f"{pushing.outage_seconds:.1f} s"),
        ("another worker was ready after the kill in", f"{result.worker_seconds:.1f} s"),
        ("the destination was away for", f"{delivery.away_seconds:.1f} s"),
    ]
    if result.latency is not None:
        waited = result.latency
        rows += [
            ("push to joined result, the kills included: median", f"{waited.median_seconds:.1f} s"),
            ("  99 %", f"{waited.p99_seconds:.1f} s"),
            ("  slowest", f"{waited.max_seconds:.1f} s"),
        ]
    rows.append(("all of it took", f"{result.seconds:.0f} s"))
    output.say()
    output.show_table(("what", "how much"), rows, right=("how much",))
    output.say()
    heads = ("minute", "region", "clicks", "ms")
    found = [(f"{row['minute']:%H:%M}", row["region"], f"{row['clicks']:,}", f"{row['ms']:,}") for row in result.rows]
    output.show_table(heads, [*found, ("…",) * len(heads)], title="from Parquet:", right=heads[2:])


def _audited(audit: Audit) -> str:
    verdict = "balanced" if audit.is_balanced else "NOT balanced"
    return f"{verdict}: {audit.messages:,} messages in {audit.queues} queues"


def _delivered(place: Comparison) -> str:
    return f"{place.found:,} of {place.expected:,} rows"
