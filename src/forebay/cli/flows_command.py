"""`forebay flows`: are these definitions right, how do the flows stand, and run, pause or resume one.

`list`, `pause` and `resume` ask the servers, so they say and do the same on every machine: a worker tells the servers
about once a second how its flows stand, and hears what is wanted of them. They concern flows on Spark's streams, which
a settings file defines, and flows of dispatch, which `define` gives to the server; `dispatch_flows` has what is for
the latter alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forebay.cli import dispatch_flows, flow_errors, flow_retry, output
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
from forebay.cli.worker_command import lane_options, run_worker
from forebay.config.load import Loaded, load
from forebay.config.model import Settings
from forebay.errors import Permanent, SettingsRefused
from forebay.flows.definition import PARCELS, Flow
from forebay.flows.faults import FlowFault
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.flow_file import FoundFlows, find_flows
from forebay.flows.flow_report import FlowReport
from forebay.flows.supervision import State

app = typer.Typer(help="Check, define, list, show, run, pause, resume and stop flows; resume policies.")
for command in (dispatch_flows.define, dispatch_flows.show, dispatch_flows.stop, dispatch_flows.forget):
    app.command()(command)
app.command()(flow_errors.errors)
app.command()(flow_retry.retry)
app.add_typer(dispatch_flows.policies, name="policies")

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
            all_faults = [*found.faults, *_uncompilable(session, found, wrong)]
    else:
        found = find_flows(file)
        all_faults = [*found.faults]
    faults += [{"place": f.place, "flow": f.flow, "key": f.key, "message": f.message} for f in all_faults]
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
    """List flows: state, rows, lag, and why one does not run. Without a settings file, all that the server knows.

    Flows of dispatch come first, with where their parcels are; in JSON they have `"kind": "dispatch"`.
    """
    with connected_to(server_url(url, loaded.settings.server).split(","), api_key) as client:
        answer = client.get("/api/v1/flows")
        dispatched = client.flows()
    known = {info.report.name: _shown(info) for info in msgspec.convert(answer, _Listed).flows}
    if loaded.file is not None:
        flows = flows_of(loaded)
        found = [known.get(flow.name) or _never_ran(flow) for flow in flows]
        dispatched = [one for one in dispatched if one["name"] in {flow.name for flow in flows}]
    else:
        found = list(known.values())
    if output_format is Format.JSON:
        output.show_json([*found, *({"kind": "dispatch", **flow} for flow in dispatched)])
        return
    if dispatched:
        dispatch_flows.show_flows(dispatched)
        if not found:
            return
        output.say()
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
        run_worker(loaded.settings, lambda: [flow_named(flows_of(loaded), name)], where, api_key)
        return
    with _stopped_at_end(spark_for(loaded.settings.spark, where, api_key)) as spark:
        # With Spark there: what stands at the top of the flows' modules may ask for a session.
        flow = flow_named(flows_of(loaded), name)
        run_once = _run_parcels_once if flow.mode == PARCELS else _run_stream_once
        run_once(loaded.settings, flow, spark, (where, api_key))


def _run_stream_once(settings: Settings, flow: Flow, spark: Session, server: tuple[str, str | None]) -> None:
    from forebay.spark.flow_code import send_code
    from forebay.spark.flow_runner import SparkRunner

    send_code(spark, [flow])
    directory = FlowDirectory(settings.data_dir, flow.name)
    with directory.locked():
        running = SparkRunner(spark, connection(*server), is_once=True).start(flow, directory)
        try:
            progress = running.wait()
        except BaseException:
            running.stop()
            raise
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    output.say(f"{flow.name}: {progress.rows:,} rows read in {_counted(progress.batches, 'batch', 'es')}{bad}")


def _run_parcels_once(settings: Settings, flow: Flow, spark: Session, server: tuple[str, str | None]) -> None:
    """Define the flow, and work on its parcels until what its queue holds now is finished."""
    from forebay.spark.flow_code import send_code
    from forebay.spark.parcels.once import run_once

    send_code(spark, [flow])
    done = run_once(spark, flow, connection(*server), lane_options(settings, [flow], ()))
    bad = f", {done.bad:,} bad" if done.bad else ""
    errors = f"; {_counted(done.errors, 'parcel')} in error: {done.cause}" if done.errors else ""
    output.say(f"{flow.name}: {done.rows:,} rows read in {_counted(done.leases, 'job')}{bad}{errors}")
    if done.errors:
        raise typer.Exit(ExitCode.REFUSED)


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
        # A file that cannot be read at all is reported once, by the flows.
        faults = [fault for fault in refused.faults if fault.key != "config"]
        return Settings(), [{"place": "", "flow": "", "key": "", "message": str(fault)} for fault in faults]


def _uncompilable(spark: Session, found: FoundFlows, wrong: set[str]) -> Iterator[FlowFault]:
    from forebay.spark.flow_check import check_flow
    from forebay.spark.flow_plan import DoesNotCompile
    from forebay.spark.parcels.parcel_check import check_parcel_flow

    wrong = wrong | {fault.flow for fault in found.faults}
    for located in found.flows:
        if located.flow.name in wrong:
            continue
        try:
            if located.flow.mode == PARCELS:
                check_parcel_flow(spark, located.flow)
            else:
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
    """Have the flow paused or resumed: the one of dispatch, if there is one of the name. One that the settings file
    defines need not have run yet."""
    is_on_parcels = loaded.file is not None and flow_named(flows_of(loaded), name).mode == PARCELS
    with connected_to(server_url(url, loaded.settings.server).split(","), api_key) as client:
        if (loaded.file is None or is_on_parcels) and dispatch_flows.set_state(client, name, is_paused=is_paused):
            return
        if is_on_parcels:
            raise Permanent(f"no server knows flow {name!r} yet", remedy="A worker defines it when it starts")
        set_paused(client, name, is_paused=is_paused, is_new=loaded.file is not None)


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"
