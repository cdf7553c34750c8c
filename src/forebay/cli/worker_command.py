"""`forebay worker`: runs the flows of a settings file on Spark, on any machine that reaches the servers.

Each batch of a stream and each lease of parcels is a line on stdout, and so is every change of a flow's state. SIGTERM
and Ctrl-C stop it cleanly; a batch under way is repeated by the next worker, parcels at hand are given back. The
checkpoint of a stream lives in `<data_dir>/flows/`: see `forebay.flows.flow_directory`; flows on parcels have none.
How a flow stands, and whether it is paused, the servers know.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from forebay.cli import output
from forebay.cli.flow_server import FlowServer, worker_name
from forebay.cli.flow_session import ServerUrlOption, Session, connection, flows_of, refuse_early, server_url, spark_for
from forebay.cli.server_option import KeyOption
from forebay.cli.settings_flags import with_settings
from forebay.cli.usable_paths import writable_directory
from forebay.config.load import Loaded
from forebay.config.model import Settings
from forebay.flows.definition import PARCELS, Flow
from forebay.flows.worker import Worker

READY = "forebay: working on "
LOOK_SECONDS = 1.0
ActionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--actions",
        metavar="PATTERN",
        help="Work only on parcels of these action classes, such as 'geo.*' or sql. May stand several times.",
        show_default=False,
    ),
]


@with_settings
def worker(
    loaded: Loaded, url: ServerUrlOption = None, api_key: KeyOption = None, actions: ActionsOption = None
) -> None:
    """Run the flows of a settings file on Spark until SIGTERM or Ctrl-C."""
    refuse_early(loaded)
    where = server_url(url, loaded.settings.server)
    run_worker(loaded.settings, lambda: flows_of(loaded), where, api_key, actions or ())


def run_worker(
    settings: Settings,
    find: Callable[[], Sequence[Flow]],
    url: str,
    api_key: str | None,
    actions: Sequence[str] = (),
) -> None:
    """Start Spark, find the flows, which may import code that wants Spark, and look after them until stopped."""
    writable_directory(settings.data_dir, "data_dir")
    stopping = threading.Event()
    # Before Spark, so that a stop while it starts is heeded; and after it, because Spark sets a handler of its own.
    _stop_on_signals(stopping)
    spark = spark_for(settings.spark, url, api_key)
    _stop_on_signals(stopping)
    try:
        _look_after(settings, find(), spark, connection_to=(url, api_key), actions=actions, stopping=stopping)
    finally:
        from forebay.spark.flow_runner import stop_session

        stop_session(spark)


def _look_after(
    settings: Settings,
    flows: Sequence[Flow],
    spark: Session,
    *,
    connection_to: tuple[str, str | None],
    actions: Sequence[str],
    stopping: threading.Event,
) -> None:
    from forebay.spark.flow_code import send_code
    from forebay.spark.flow_runner import SparkRunner

    send_code(spark, flows)
    url, api_key = connection_to
    # A worker that is for some action classes alone leaves streams to others.
    streams = [flow for flow in flows if flow.mode != PARCELS and not actions]
    names = [flow.name for flow in flows]
    parcels = _parcel_worker(settings, flows, spark, connection_to, actions)
    _tell(f"{READY}{len(flows)} flow{'' if len(flows) == 1 else 's'}: {', '.join(names)} ({url})")
    with FlowServer(url.split(","), api_key, worker_name(settings.data_dir), names, tell=_tell) as control:
        runner = SparkRunner(spark, connection(url, api_key))
        worker = Worker(streams, runner, settings.data_dir, control, tell=_tell, is_stopping=stopping.is_set)
        if parcels is not None:
            parcels.start()
        try:
            while not stopping.is_set():
                worker.step()
                if parcels is not None:
                    parcels.check()
                    control.report_parcels(parcels.reports())
                stopping.wait(LOOK_SECONDS)
        finally:
            if parcels is not None:
                parcels.stop()
                control.report_parcels(parcels.reports())
            worker.stop()


def _parcel_worker(
    settings: Settings,
    flows: Sequence[Flow],
    spark: Session,
    connection_to: tuple[str, str | None],
    actions: Sequence[str],
) -> Any:
    """What works on the flows' parcels; None if no flow is on parcels."""
    on_parcels = [flow for flow in flows if flow.mode == PARCELS]
    if not on_parcels:
        return None
    from forebay.spark.parcels.worker import ParcelWorker

    options = lane_options(settings, on_parcels, actions)
    return ParcelWorker(spark, on_parcels, connection(*connection_to), options, tell=_tell)


def lane_options(settings: Settings, flows: Sequence[Flow], actions: Sequence[str]) -> Any:
    """How a worker takes parcels: of these action classes, or of those that the flows have."""
    from forebay.spark.parcels.lanes import LaneOptions
    from forebay.spark.parcels.worker import classes_of

    wanted = settings.worker
    return LaneOptions(
        f"{socket.gethostname()}:{os.getpid()}",
        actions or classes_of(flows),
        wanted.lanes,
        wanted.lease_parcels,
        wanted.lease_messages,
    )


def _tell(line: str) -> None:
    output.say(line)
    output.finish()


def _stop_on_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
