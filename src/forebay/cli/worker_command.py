"""`forebay worker`: runs the flows of a settings file on Spark, on any machine that reaches the servers.

Each flow that completes a batch is told in a line on stdout, and so is every change of its state. SIGTERM and Ctrl-C
stop it cleanly; a batch under way is repeated by the next worker. A flow's checkpoint lives in `<data_dir>/flows/`: see
`forebay.flows.flow_directory`. How it stands, and whether it is paused, the servers know.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence

from forebay.cli import output
from forebay.cli.flow_server import FlowServer, worker_name
from forebay.cli.flow_session import ServerUrlOption, Session, connection, flows_of, refuse_early, server_url, spark_for
from forebay.cli.server_option import KeyOption
from forebay.cli.settings_flags import with_settings
from forebay.cli.usable_paths import writable_directory
from forebay.config.load import Loaded
from forebay.config.model import Settings
from forebay.flows.definition import Flow
from forebay.flows.worker import Worker

READY = "forebay: working on "
LOOK_SECONDS = 1.0


@with_settings
def worker(loaded: Loaded, url: ServerUrlOption = None, api_key: KeyOption = None) -> None:
    """Run the flows of a settings file on Spark until SIGTERM or Ctrl-C."""
    refuse_early(loaded)
    run_worker(loaded.settings, lambda: flows_of(loaded), server_url(url, loaded.settings.server), api_key)


def run_worker(settings: Settings, find: Callable[[], Sequence[Flow]], url: str, api_key: str | None) -> None:
    """Start Spark, find the flows, which may import code that wants Spark, and look after them until told to stop."""
    writable_directory(settings.data_dir, "data_dir")
    stopping = threading.Event()
    # Before Spark, so that a stop while it starts is heeded; and after it, because Spark sets a handler of its own.
    _stop_on_signals(stopping)
    spark = spark_for(settings.spark, url, api_key)
    _stop_on_signals(stopping)
    try:
        _look_after(settings, find(), spark, connection_to=(url, api_key), stopping=stopping)
    finally:
        from forebay.spark.flow_runner import stop_session

        stop_session(spark)


def _look_after(
    settings: Settings,
    flows: Sequence[Flow],
    spark: Session,
    *,
    connection_to: tuple[str, str | None],
    stopping: threading.Event,
) -> None:
    from forebay.spark.flow_code import send_code
    from forebay.spark.flow_runner import SparkRunner

    send_code(spark, flows)
    url, api_key = connection_to
    runner = SparkRunner(spark, connection(url, api_key))
    names = [flow.name for flow in flows]
    _tell(f"{READY}{len(flows)} flow{'' if len(flows) == 1 else 's'}: {', '.join(names)} ({url})")
    with FlowServer(url.split(","), api_key, worker_name(settings.data_dir), names, tell=_tell) as control:
        worker = Worker(flows, runner, settings.data_dir, control, tell=_tell, is_stopping=stopping.is_set)
        try:
            while not stopping.is_set():
                worker.step()
                stopping.wait(LOOK_SECONDS)
        finally:
            worker.stop()


def _tell(line: str) -> None:
    output.say(line)
    output.finish()


def _stop_on_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
