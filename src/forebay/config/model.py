"""The settings: one frozen model. A key stands here when code obeys it, and not before.

A new section is one class and one line in `Settings`; its keys, environment names, flags, faults and its part of
`docs/reference/settings.md` follow from it. Every field has a default, a description and, where it is a number, bounds.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from forebay.config.dispatch_model import DispatchSettings
from forebay.config.export_model import ExporterSettings, ReceiversSettings, TelemetrySettings
from forebay.config.section import Section
from forebay.config.units import parse_size
from forebay.config.values import Directory, Duration, Size


class LogSettings(Section):
    """The commit log: where an embedded broker keeps its messages."""

    segment_size: Size = Field(
        default=parse_size("512Mi"),
        ge=parse_size("4Ki"),
        le=parse_size("64Gi"),
        description="A segment is sealed, and a new one begun, when it reaches this size.",
    )
    roll_daily: bool = Field(
        default=True,
        description="Also begin a new segment when the UTC day changes, so that whole days can be removed.",
    )
    read_chunk: Size = Field(
        default=parse_size("1Mi"),
        ge=parse_size("64Ki"),
        le=parse_size("64Mi"),
        description="How much of a segment one reader holds in memory.",
    )
    compression: Literal["auto", "never"] = Field(
        default="auto",
        description="`auto` compresses a record with Snappy where a sample says that it shrinks by a third; "
        "`never` stores every record as it came.",
    )


class ServerSettings(Section):
    """The HTTP server: `forebay serve`."""

    host: str = Field(
        default="127.0.0.1",
        description="The address to listen on. One that others can reach needs keys (`forebay keys`, or "
        "`server.keys`), or `--insecure`.",
    )
    port: int = Field(default=6632, ge=0, le=65535, description="The port to listen on; 0 takes a free one.")
    store: str = Field(
        default="embedded",
        description="Where queues live: `embedded` (in `data_dir`), or the URL of a database, `postgresql://…`.",
    )
    body_size: Size = Field(
        default=parse_size("64Mi"),
        ge=parse_size("64Ki"),
        le=parse_size("1Gi"),
        description="The largest request body, also once it is decompressed.",
    )
    memory_size: Size = Field(
        default=parse_size("512Mi"),
        ge=parse_size("64Mi"),
        le=parse_size("1Ti"),
        description="How much memory bodies and answers may take, of all requests together; a quarter more for bodies "
        "up to 1 MiB. A large body for which there is no room waits, and answers hold fewer messages. While a request "
        "waits, a client that moves its body or answer by less than 256 KiB a second loses its room.",
    )
    body_time: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(hours=1),
        description="How long a request body may take to arrive. One that is slower is refused with 408.",
    )
    poll_time: Duration = Field(
        default=timedelta(hours=1),
        ge=timedelta(seconds=1),
        le=timedelta(hours=1),
        description="How long a pop may wait at the most, whatever its `timeout` says.",
    )
    stop_time: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(seconds=0),
        le=timedelta(hours=1),
        description="How long requests that are under way may take to end when the server stops.",
    )
    stop_delay: Duration = Field(
        default=timedelta(seconds=0),
        ge=timedelta(seconds=0),
        le=timedelta(hours=1),
        description="How long the server goes on serving when it is stopped, with `/readyz` saying that it is not "
        "ready: time for a balancer to notice. A second signal ends it.",
    )
    retention_interval: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="How often messages that no queue keeps any longer are removed.",
    )
    stage_retention: Duration = Field(
        default=timedelta(hours=24),
        ge=timedelta(minutes=1),
        le=timedelta(days=365),
        description="How long rows that were staged wait for their commit before they are removed.",
    )
    commit_retention: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(minutes=1),
        le=timedelta(days=3650),
        description="How long a commit of staged rows is remembered. The same epoch, committed again later than that, "
        "is taken for a new one.",
    )
    trace_retention: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(minutes=1),
        le=timedelta(days=3650),
        description="How long what consumers noted about messages (traces) is kept.",
    )
    dead_letter_retention: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=3650),
        description="How long dead letters are kept; 0 for ever.",
    )
    idle_group_retention: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=3650),
        description="How long a group is known that does not pop and holds no lease; 0 for ever. One that comes back "
        "later is a new group, and gets what is kept again, unless it subscribes to new messages.",
    )
    empty_partition_retention: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=timedelta(days=3650),
        description="How long a partition is known that holds no message and gets none; 0 for ever. One with dead "
        "letters or traces stays. The next push makes it anew.",
    )
    keys: str = Field(
        default="",
        description="A file with API keys, beside those of the store (`forebay keys`), read again when it changes. "
        "Without any key, every client that can connect may do everything.",
    )
    allowed_hosts: str = Field(
        default="",
        description="The names by which clients call this server (their `Host` header), with commas between them; `*` "
        "allows any. Loopback names always do. If empty, a server without keys on a loopback address serves loopback "
        "names only, so that no web page can reach it by way of a name of its own.",
    )
    encryption_key_file: str = Field(
        default="",
        description="The file with the keys of encrypted queues, 64 hexadecimal digits on a line: the first key seals, "
        "all of them open. Without it, `FOREBAY_ENCRYPTION_KEY` of the environment counts.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning",
        description="What the server writes to stderr. `info` tells of start and stop, of refused keys and of every "
        "flush of buffer files as well. Read again on SIGHUP.",
    )
    certificate: str = Field(
        default="",
        description="The file with the certificate chain (PEM), for HTTPS. Read again when it changes, and on SIGHUP.",
    )
    certificate_key: str = Field(default="", description="The file with the private key (PEM) of the certificate.")
    client_ca_file: str = Field(
        default="",
        description="The file with the authorities (PEM) of clients' certificates. With it, a client without a "
        "certificate of theirs cannot connect (mTLS); keys are needed all the same. Read again when it changes.",
    )
    session_time: Duration = Field(
        default=timedelta(hours=12),
        ge=timedelta(minutes=1),
        le=timedelta(days=30),
        description="How long a sign-in on the web page lasts.",
    )
    audit_retention: Duration = Field(
        default=timedelta(days=90),
        ge=timedelta(hours=1),
        le=timedelta(days=3650),
        description="How long admin actions stay in the audit log, 100,000 of them at the most; revoked keys are "
        "listed for as long.",
    )


class LoggingSettings(Section):
    """How the server's log is written. How much of it, `server.log_level` says."""

    format: Literal["human", "json"] = Field(
        default="human",
        description="A line of text for each event, or a JSON object, on stderr. Both have the event's `action`, a "
        "word that stays the same from version to version.",
    )


class BufferSettings(Section):
    """Buffer files: QoS 0 pushes, and all pushes while the store is away."""

    dir: str = Field(
        default="",
        description="Where they are; `buffers` in `data_dir` if empty. On a disk of its own it outlives a full one.",
    )
    flush_time: Duration = Field(
        default=timedelta(milliseconds=100),
        ge=timedelta(milliseconds=1),
        le=timedelta(minutes=1),
        description="How often buffered messages are stored; for QoS 0 pushes, when they do not say `bufferMs`.",
    )
    max_batch: int = Field(
        default=100,
        ge=1,
        le=1_000_000,
        description="How many QoS 0 messages are stored at once without waiting, when pushes do not say `bufferMax`.",
    )
    store_timeout: Duration = Field(
        default=timedelta(milliseconds=1500),
        ge=timedelta(milliseconds=10),
        le=timedelta(minutes=10),
        description="How long a push waits for a database before it goes to the failover file.",
    )
    alert_size: Size = Field(
        default=1_000_000_000,
        ge=1,
        le=parse_size("1024Ti"),
        description="More bytes than this are reported in the log.",
    )
    alert_events: int = Field(default=100_000, ge=1, description="More messages than this are reported in the log.")
    max_size: Size = Field(
        default=parse_size("10Gi"),
        ge=parse_size("64Ki"),
        le=parse_size("1024Ti"),
        description="With more bytes than this, pushes are refused.",
    )
    max_events: int = Field(default=10_000_000, ge=1, description="With more messages than this, pushes are refused.")


class SparkSettings(Section):
    """Spark, for flows: `forebay worker`, `forebay up` and `forebay flows`."""

    master: str = Field(
        default="local[*]",
        description="Where Spark runs: `local[*]` in the worker itself, `spark://…`, `k8s://…`, `yarn`, or a Spark "
        "Connect server, `sc://…`.",
    )
    memory: Size = Field(
        default=parse_size("1Gi"),
        ge=parse_size("512Mi"),
        le=parse_size("1Ti"),
        description="The memory of Java in the worker (Spark's driver, and everything if the master is local).",
    )
    ui_port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="The port of Spark's own pages (queries, stages, plans) in the worker; 0 for none. They ask for no "
        "password and are served on all addresses, or on that of the variable `SPARK_LOCAL_IP`.",
    )
    properties: str = Field(
        default="",
        description="A file with more properties of Spark, a name and a value per line. They win over all others.",
    )


class WorkerSettings(Section):
    """How a worker takes parcels: `forebay worker` and `forebay up`."""

    lanes: int = Field(
        default=4, ge=1, le=256, description="How many leases are worked on at a time, each in a Spark job of its own."
    )
    lease_parcels: int = Field(default=100, ge=1, le=1_000, description="How many parcels one job has at the most.")
    lease_messages: int = Field(
        default=200_000,
        ge=1,
        le=100_000_000,
        description="How many messages the parcels of one job have at the most, the first parcel's not counted.",
    )


class Settings(Section):
    """What concerns Forebay as a whole, and its sections."""

    profile: Literal["minimal", "balanced", "performance"] = Field(
        default="balanced", description="The set of defaults to start from; any other key overrides it."
    )
    data_dir: Directory = Field(
        default=Path("forebay-data"), description="Where embedded data lives, relative to the working directory."
    )
    log: LogSettings = LogSettings()
    server: ServerSettings = ServerSettings()
    buffer: BufferSettings = BufferSettings()
    dispatch: DispatchSettings = DispatchSettings()
    spark: SparkSettings = SparkSettings()
    worker: WorkerSettings = WorkerSettings()
    exporter: ExporterSettings = ExporterSettings()
    receivers: ReceiversSettings = ReceiversSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    logging: LoggingSettings = LoggingSettings()
