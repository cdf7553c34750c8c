"""`forebay flows`: are these definitions right, how do the flows stand, and run, pause or resume one.

`list`, `pause` and `resume` ask the servers, so they say and do the same on every machine: a worker tells the servers
about once a second how its flows stand, and hears what is wanted of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forebay.cli import output
from forebay.cli.flow_server import pause as set_paused
from forebay.cli.flow_session import (
    ServerUrlOption,
    Session,
    connection,
    flow_named,
    flows_of,
    refuse_early,
    server_url,
    spark_for,
)
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.server_option import KeyOption, connected_to
from forebay.cli.settings_flags import with_settings
from forebay.config.load import Loaded, load
from forebay.config.model import Settings
from forebay.errors import SettingsRefused
from forebay.flows.definition import Flow
from forebay.flows.faults import FlowFault
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.flow_file import FoundFlows, find_flows
from forebay.flows.flow_report import FlowReport
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
    written = find_flows(file, is_code_loaded=False)
    wrong = {fault["flow"] for fault in faults} | {fault.flow for fault in written.faults}
    if spark and (written.has_modules or {located.flow.name for located in written.flows} - wrong):
        with _stopped_at_end(spark_for(settings.spark)) as session:
            found = find_flows(file)
            told = [*found.faults, *_uncompilable(session, found, wrong)]
    else:
        found = find_flows(file)
        told = [*found.faults]
    faults += [{"place": f.place, "flow": f.flow, "key": f.key, "message": f.message} for f in told]
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
    """List flows: state, rows, lag, and why one does not run. Without a settings file, all that the server knows."""
    with connected_to(server_url(url, loaded.settings.server).split(","), api_key) as client:
        answer = client.get("/api/v1/flows")
    known = {info.report.name: _shown(info) for info in msgspec.convert(answer, _Listed).flows}
    if loaded.file is not None:
        found = [known.get(flow.name) or _never_ran(flow) for flow in flows_of(loaded)]
    else:
        found = list(known.values())
    if output_format is Format.JSON:
        output.show_json(found)
        return
    heads = ("flow", "state", "lag", "rows", "bad", "batch", "seconds", "restarts", "cause")
    rows = [
        (
            one["name"],
            one["state"],
            "-" if one["lag"] is None else one["lag"],
            one["rows"],
            one["bad_rows"],
            "" if one["batch"] is None else one["batch"],
            f"{one['batch_seconds']:.1f}",
            one["restarts"],
            (one["cause"] or one["note"]).partition("\n")[0],
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
    refuse_early(loaded, name)
    where = server_url(url, loaded.settings.server)
    if not once:
        from forebay.cli.worker_command import run_worker

        run_worker(loaded.settings, lambda: [flow_named(flows_of(loaded), name)], where, api_key)
        return
    from forebay.spark.flow_code import send_code
    from forebay.spark.flow_runner import SparkRunner

    directory = FlowDirectory(loaded.settings.data_dir, name)
    with directory.locked(), _stopped_at_end(spark_for(loaded.settings.spark, where, api_key)) as spark:
        flow = flow_named(flows_of(loaded), name)
        send_code(spark, [flow])
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
def pause(loaded: Loaded, name: NameArgument, url: ServerUrlOption = None, api_key: KeyOption = None) -> None:
    """Pause a flow. It stops after a second or so, and goes on from there when it is resumed."""
    _have(loaded, name, url, api_key, is_paused=True)
    output.say(f"{name}: to be paused")


@app.command()
@with_settings
def resume(loaded: Loaded, name: NameArgument, url: ServerUrlOption = None, api_key: KeyOption = None) -> None:
    """Resume a flow that was paused, or start one again that failed."""
    _have(loaded, name, url, api_key, is_paused=False)
    output.say(f"{name}: to be resumed")


def _settings_of(file: Path) -> tuple[Settings, list[dict[str, str]]]:
    try:
        return load(file=file, file_named_by="argument FILE").settings, []
    except SettingsRefused as refused:
        # A file that cannot be read at all is told once, by the flows.
        faults = [fault for fault in refused.faults if fault.key != "config"]
        return Settings(), [{"place": "", "flow": "", "key": "", "message": str(fault)} for fault in faults]


def _uncompilable(spark: Session, found: FoundFlows, wrong: set[str]) -> Iterator[FlowFault]:
    from forebay.spark.flow_check import check_flow
    from forebay.spark.flow_plan import DoesNotCompile

    wrong = wrong | {fault.flow for fault in found.faults}
    for located in found.flows:
        if located.flow.name in wrong:
            continue
        try:
            check_flow(spark, located.flow)
        except DoesNotCompile as fault:
            yield located.fault(fault.key.partition(" ")[0], fault.cause)


@contextmanager
def _stopped_at_end(spark: Session) -> Iterator[Session]:
    try:
        yield spark
    finally:
        spark.stop()


class _Info(msgspec.Struct, rename="camel"):
    report: FlowReport
    is_paused: bool
    worker: str
    updated_at: str | None


class _Listed(msgspec.Struct):
    flows: list[_Info]


def _shown(info: _Info) -> dict[str, Any]:
    fields = {name: getattr(info.report, name) for name in FlowReport.__struct_fields__}
    return {**fields, "state": str(info.report.state), "is_paused": info.is_paused, "updated": info.updated_at or ""}


def _never_ran(flow: Flow) -> dict[str, Any]:
    report = FlowReport(
        name=flow.name,
        state=State.STOPPED,
        queue=flow.source.queue,
        group=flow.group,
        error_queue=flow.errors_to,
    )
    return _shown(_Info(report, is_paused=False, worker="", updated_at=None))


def _have(loaded: Loaded, name: str, url: str | None, api_key: str | None, *, is_paused: bool) -> None:
    """Have the flow paused or resumed. One that the settings file defines need not have run yet."""
    if loaded.file is not None:
        flow_named(flows_of(loaded), name)
    with connected_to(server_url(url, loaded.settings.server).split(","), api_key) as client:
        set_paused(client, name, is_paused=is_paused, is_new=loaded.file is not None)


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"
