"""`forebay flows`: are these definitions right, how do the flows stand, and run, pause or resume one.

`pause` and `resume` leave a wish in the flow's directory, where the worker looks for it once a second. So they work on
the machine of the worker, with the same data directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.cli import output
from forebay.cli.flow_session import (
    ServerUrlOption,
    Session,
    connection,
    flow_named,
    flows_of,
    server_url,
    spark_for,
)
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.server_option import KeyOption, connected_to
from forebay.cli.settings_flags import with_settings
from forebay.config.load import Loaded, load
from forebay.config.model import Settings, SparkSettings
from forebay.errors import ForebayError, Permanent, SettingsRefused
from forebay.flows.checks import Located
from forebay.flows.definition import Flow
from forebay.flows.faults import FlowFault
from forebay.flows.flow_directory import FlowDirectory, FlowReport
from forebay.flows.flow_file import find_flows
from forebay.flows.supervision import State

app = typer.Typer(help="Check, list, run, pause and resume flows.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The flow.")]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file to check.")],
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Let Spark compile the flows.")] = True,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Check the flows of a file and list all faults, also of its settings. Exits with 1 if there are any."""
    settings, faults = _settings_of(file)
    found = find_flows(file)
    faults += [{"place": f.place, "flow": f.flow, "key": f.key, "message": f.message} for f in found.faults]
    wrong = {fault["flow"] for fault in faults}
    compiled = [located for located in found.flows if located.flow.name not in wrong]
    if spark and compiled:
        faults += [
            {"place": f.place, "flow": f.flow, "key": f.key, "message": f.message}
            for f in _uncompilable(compiled, settings.spark)
        ]
    if output_format is Format.JSON:
        output.show_json({"ok": not faults, "faults": faults, "flows": [one.flow.name for one in found.flows]})
    elif faults:
        output.say(f"{file}: {_counted(len(faults), 'fault')}")
        for fault in faults:
            output.say("  " + ": ".join(part for part in fault.values() if part))
    else:
        output.say(f"{file}: ok, {_counted(len(found.flows), 'flow')}{'' if spark else ' (not compiled by Spark)'}")
    if faults:
        raise typer.Exit(ExitCode.REFUSED)


@app.command("list")
@with_settings
def list_flows(
    loaded: Loaded,
    url: ServerUrlOption = None,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List flows: state, rows, lag, and why one does not run."""
    flows = flows_of(loaded)
    lags = _lags(server_url(url, loaded.settings.server), api_key)
    found = [_listed(flow, loaded.settings.data_dir, lags) for flow in flows]
    if output_format is Format.JSON:
        output.show_json(found)
        return
    heads = ("flow", "state", "lag", "rows", "bad", "batch", "seconds", "restarts", "cause")
    rows = [
        (
            one["name"],
            one["state"],
            "?" if one["lag"] is None else one["lag"],
            one["rows"],
            one["bad_rows"],
            "" if one["batch"] is None else one["batch"],
            f"{one['batch_seconds']:.1f}",
            one["restarts"],
            one["cause"].partition("\n")[0],
        )
        for one in found
    ]
    output.show_table(heads, rows, right=heads[2:-1])


@app.command()
@with_settings
def run(
    loaded: Loaded,
    name: NameArgument,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    url: ServerUrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Run one flow: until SIGTERM or Ctrl-C, or with --once until everything that is there now has been read."""
    flow = flow_named(flows_of(loaded), name)
    where = server_url(url, loaded.settings.server)
    if not once:
        from forebay.cli.worker_command import run_worker

        run_worker(loaded.settings, [flow], where, api_key)
        return
    from forebay.spark.flow_runner import SparkRunner

    directory = FlowDirectory(loaded.settings.data_dir, name)
    with directory.locked(), _stopped_at_end(spark_for(loaded.settings.spark, where, api_key)) as spark:
        running = SparkRunner(spark, connection(where, api_key), is_once=True).start(flow, directory)
        try:
            progress = running.wait()
        except BaseException:
            running.stop()
            raise
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    output.say(f"{name}: {progress.rows:,} rows read in {_counted(progress.batches, 'batch', 'es')}{bad}")


@app.command()
@with_settings
def pause(loaded: Loaded, name: NameArgument) -> None:
    """Pause a flow. It stops after a second or so, and goes on from there when it is resumed."""
    _directory(loaded, name).pause()
    output.say(f"{name}: to be paused")


@app.command()
@with_settings
def resume(loaded: Loaded, name: NameArgument) -> None:
    """Resume a flow that was paused, or start one again that failed."""
    _directory(loaded, name).resume()
    output.say(f"{name}: to be resumed")


def _settings_of(file: Path) -> tuple[Settings, list[dict[str, str]]]:
    try:
        return load(file=file, file_named_by="argument FILE").settings, []
    except SettingsRefused as refused:
        # A file that cannot be read at all is told once, by the flows.
        faults = [fault for fault in refused.faults if fault.key != "config"]
        return Settings(), [{"place": "", "flow": "", "key": "", "message": str(fault)} for fault in faults]


def _uncompilable(flows: Sequence[Located], settings: SparkSettings) -> Iterator[FlowFault]:
    from forebay.spark.flow_plan import DoesNotCompile, flow_plan

    with _stopped_at_end(spark_for(settings)) as spark:
        for located in flows:
            try:
                flow_plan(spark, located.flow)
            except DoesNotCompile as fault:
                yield located.fault(fault.key.partition(" ")[0], fault.cause)


@contextmanager
def _stopped_at_end(spark: Session) -> Iterator[Session]:
    try:
        yield spark
    finally:
        spark.stop()


def _lags(url: str, api_key: str | None) -> dict[tuple[str, str], int] | None:
    """Of every group in every queue; None if no server answers: the rest is worth telling without it."""
    try:
        with connected_to(url.split(","), api_key, attempts=1) as client:
            groups = client.get("/api/v1/consumer-groups")
    except ForebayError as fault:
        output.tell(f"forebay: no lag: {fault}")
        return None
    return {(group["queueName"], group["name"]): group["totalLag"] for group in groups}


def _listed(flow: Flow, data_dir: Path, lags: dict[tuple[str, str], int] | None) -> dict[str, Any]:
    directory = FlowDirectory(data_dir, flow.name)
    report = directory.report() or FlowReport(name=flow.name, state=State.STOPPED)
    is_paused = directory.wish().is_paused and report.state is State.STOPPED
    lag = None if lags is None else lags.get((flow.source.queue, flow.group))
    fields = {name: getattr(report, name) for name in FlowReport.__struct_fields__}
    return {
        **fields,
        "state": str(State.PAUSED if is_paused else report.state),
        "lag": report.lag if lag is None else lag,
        "queue": flow.source.queue,
        "group": flow.group,
        "errors": flow.errors_to,
    }


def _directory(loaded: Loaded, name: str) -> FlowDirectory:
    directory = FlowDirectory(loaded.settings.data_dir, name)
    if loaded.file is not None:
        flow_named(flows_of(loaded), name)
    elif not directory.path.is_dir():
        raise Permanent(f"no flow {name!r} in {directory.path.parent}", remedy="Name the settings file with -c FILE")
    return directory


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"
