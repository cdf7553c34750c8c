"""What the commands that run flows have in common: which flows, which server, and a Spark session."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli import output
from forebay.config.load import Loaded
from forebay.config.model import ServerSettings, SparkSettings
from forebay.errors import ForebayError, Permanent
from forebay.flows.definition import Flow
from forebay.flows.flow_file import check_written, load_flows

if TYPE_CHECKING:
    from forebay.spark.options import Connection

Session = Any
"""A SparkSession. Only the room `spark` imports PySpark."""

_AFTER_NAME = re.compile(r"\s*=\s*|\s+")

ServerUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="FOREBAY_URL",
        help="The server to work for, or several with commas between. Default: the one of the settings.",
        show_default=False,
    ),
]


def flows_of(loaded: Loaded) -> list[Flow]:
    """The flows of the settings file. Raises if there are none."""
    flows = load_flows(loaded.file) if loaded.file is not None else []
    if not flows:
        where = f"{loaded.file} defines" if loaded.file is not None else "no file was named that defines"
        raise Permanent(f"{where} no flows" if loaded.file else f"{where} flows", remedy="Name one with -c FILE")
    return flows


def refuse_early(loaded: Loaded, name: str | None = None) -> None:
    """Raise for what is wrong with the flows as they are written, or with a name; their code waits for Spark."""
    written = check_written(loaded.file) if loaded.file is not None else None
    if written is None or not (written.flows or written.has_modules):
        flows_of(loaded)
    elif name is not None and not written.has_modules:
        flow_named([located.flow for located in written.flows], name)


def flow_named(flows: list[Flow], name: str) -> Flow:
    found = [flow for flow in flows if flow.name == name]
    if not found:
        raise Permanent(f"no flow {name!r}", remedy=f"There are {', '.join(flow.name for flow in flows)}")
    return found[0]


def server_url(url: str | None, server: ServerSettings) -> str:
    """The server to work for: the one named, else the one that these settings would start."""
    if url is not None:
        return url
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host
    return f"{'https' if server.certificate else 'http'}://{host}:{server.port}"


def connection(url: str, api_key: str | None) -> Connection:
    from forebay.spark.options import Connection

    return Connection(tuple(part.strip().rstrip("/") for part in url.split(",")), api_key)


_OF_WORKERS = {
    # PySpark asks Java three times with every call on a column where in the program it was made, for the message of an
    # error. A worker compiles with every lease, and that took longer by it. `flows check` leaves it on.
    "spark.python.sql.dataFrameDebugging.enabled": "false"
}


def spark_for(settings: SparkSettings, url: str | None = None, api_key: str | None = None) -> Session:
    """Start Spark; it takes a while, and says so."""
    from forebay.spark.session import spark_session

    # PySpark logs every refused query with its stack; the commands tell the cause themselves.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    config = {
        "spark.driver.memory": f"{settings.memory // 2**20}m",
        # Jobs of parcels run beside each other: none waits until all tasks of another are done.
        "spark.scheduler.mode": "FAIR",
        **({} if url is None else _OF_WORKERS),
        **_ui(settings),
        **properties_of(settings),
    }
    spark = spark_session(settings.master, url=url, api_key=api_key, config=config, on_progress=output.tell)
    if not settings.master.startswith("sc://"):
        spark.sparkContext.setLogLevel("ERROR")
        if spark.sparkContext.uiWebUrl:
            output.tell(f"Spark: its pages are at {spark.sparkContext.uiWebUrl}")
    return spark


def _ui(settings: SparkSettings) -> Mapping[str, str]:
    return {"spark.ui.enabled": "true", "spark.ui.port": str(settings.ui_port)} if settings.ui_port else {}


def properties_of(settings: SparkSettings) -> Mapping[str, str]:
    """The properties in the file that the settings name: a name and a value per line, `#` before a comment."""
    if not settings.properties:
        return {}
    try:
        lines = Path(settings.properties).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise ForebayError(f"spark.properties: {settings.properties} cannot be read: {fault}") from fault
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        # The name ends at the first `=` or space; a value may hold more of both, as options of Java do.
        name, *rest = _AFTER_NAME.split(line.strip(), maxsplit=1)
        if not rest or not rest[0]:
            raise Permanent(f"spark.properties: {settings.properties} line {number}: {name!r} has no value")
        found[name] = rest[0]
    return found
