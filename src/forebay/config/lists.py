"""The lists of the settings file: `destinations` and `exports`. All faults are found, each with its line.

    destinations:
      - name: warehouse
        type: http
        url: https://warehouse.example/ingest
        headers: {Authorization: env:WAREHOUSE_TOKEN}
        queue: {mode: disk}                 # any key of exporter.queue, for this destination alone
    exports:
      - name: orders
        from: orders@warehouse              # queue@group
        to: warehouse

A value of `headers` that begins with `env:` is taken from that variable of the environment, one that begins with
`file:` from that file, when the destination is opened; neither is ever shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator

from forebay.config.export_model import SendQueueSettings
from forebay.config.masking import MASK, masked
from forebay.config.section import Section
from forebay.config.units import parse_size
from forebay.config.values import Duration, Size
from forebay.config.yaml_file import FileRefused, compose_file, plain
from forebay.errors import SettingFault

DESTINATIONS, EXPORTS = "destinations", "exports"
LISTS = (DESTINATIONS, EXPORTS)

DestinationType = Literal["otlp_http", "otlp_grpc", "remote_write", "http", "queue", "file"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _checked_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("a name of up to 64 letters, digits, dots, dashes and underscores")
    return value


_TLS = frozenset({"ca_file", "certificate", "certificate_key"})
_HTTP = _TLS | {"url", "headers", "timeout"}
OBEYED: dict[DestinationType, frozenset[str]] = {
    "otlp_http": _HTTP | {"compression"},
    "otlp_grpc": _HTTP | {"compression", "insecure"},
    "remote_write": _HTTP,
    "http": _HTTP | {"compression", "format"},
    "queue": frozenset({"queue_name"}),
    "file": frozenset({"path", "format", "max_size"}),
}
"""The keys that a destination of each type obeys, beside `name`, `type` and `queue`. Any other is a fault: a key that
is taken and ignored is a certificate that is not shown, or a secret that is not sent."""
_VALUES: dict[tuple[str, str], tuple[str, ...]] = {
    ("otlp_grpc", "compression"): ("gzip", "none"),
    ("file", "format"): ("ndjson", "envelopes"),
}
"""The values of a key that a type obeys, where it does not obey all."""


class DestinationSettings(Section):
    """Where batches go."""

    name: str
    type: DestinationType
    url: str = ""
    queue_name: str = Field(default="", description="Of type `queue`: which queue.")
    path: str = Field(default="", description="Of type `file`: which file.")
    format: Literal["json", "ndjson", "envelopes"] = "json"
    compression: Literal["gzip", "zstd", "snappy", "none"] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timeout: Duration = timedelta(seconds=30)
    ca_file: str = ""
    certificate: str = ""
    certificate_key: str = ""
    insecure: bool = Field(
        default=False, description="Of type `otlp_grpc`: without TLS, as with a url that begins with `http://`."
    )
    max_size: Size = Field(default=parse_size("1Gi"), ge=1024, description="Of type `file`: when it is rotated.")
    queue: SendQueueSettings = SendQueueSettings()

    _name = field_validator("name")(_checked_name)

    @model_validator(mode="after")
    def _has_a_place(self) -> DestinationSettings:
        needed = {"queue": "queue_name", "file": "path"}.get(self.type, "url")
        if not getattr(self, needed):
            raise ValueError(f"a destination of type {self.type} needs {needed}")
        if needed == "url" and self.type != "otlp_grpc" and not self.url.startswith(("http://", "https://")):
            raise ValueError("a url that begins with http:// or https://")
        if needed == "url" and urlsplit(self.url).username and "authorization" in map(str.lower, self.headers):
            raise ValueError("a user in the url, or the header Authorization, and not both")
        return self

    @model_validator(mode="after")
    def _obeys_its_keys(self) -> DestinationSettings:
        given = self.model_fields_set - {"name", "type", "queue"}
        if ignored := sorted(given - OBEYED[self.type]):
            known = ", ".join(sorted(OBEYED[self.type]))
            raise ValueError(f"a destination of type {self.type} does not obey {', '.join(ignored)}; it has {known}")
        for (of, key), values in _VALUES.items():
            if of == self.type and key in given and getattr(self, key) not in values:
                raise ValueError(f"{key} of a destination of type {of}: {' or '.join(values)}")
        if self.certificate_key and not self.certificate:
            raise ValueError("a certificate_key needs its certificate")
        is_plain = self.insecure or self.url.startswith("http://")
        if is_plain and self.type == "otlp_grpc" and any(getattr(self, key) for key in _TLS):
            raise ValueError("certificates, or no TLS (insecure, a url with http://), and not both")
        return self


class BatchSettings(Section):
    """How many messages go into a request."""

    max_messages: int = Field(default=500, ge=1, le=10_000)
    max_bytes: Size = Field(default=parse_size("4Mi"), ge=1024, le=parse_size("64Mi"))
    max_wait: Duration = Field(default=timedelta(milliseconds=200), ge=timedelta(0), le=timedelta(minutes=5))


class ExportSettings(Section):
    """A queue that is drained into a destination by a consumer group."""

    name: str
    source: str = Field(validation_alias=AliasChoices("from", "source"))
    to: str
    batch: BatchSettings = BatchSettings()
    format: Literal["messages", "metrics", "traces", "logs", "remote_write"] = "messages"
    workers: int = Field(default=4, ge=1, le=256)
    subscription: Literal["all", "new"] = "all"

    _name = field_validator("name")(_checked_name)

    @field_validator("source")
    @classmethod
    def _names_queue_and_group(cls, value: str) -> str:
        queue, at, group = value.rpartition("@")
        if not (queue and at and group):
            raise ValueError("queue@group")
        return value

    @property
    def queue(self) -> str:
        return self.source.rpartition("@")[0]

    @property
    def group(self) -> str:
        return self.source.rpartition("@")[2]


def read_lists(
    file: Path, queue: SendQueueSettings, faults: list[SettingFault]
) -> tuple[Sequence[DestinationSettings], Sequence[ExportSettings]]:
    """The destinations and exports of a file; `queue` is what destinations start from. Appends what is wrong."""
    destinations: list[DestinationSettings] = []
    exports: list[ExportSettings] = []
    for key, value, where in _items(file, faults):
        if isinstance(value, dict) and "queue" in value:
            _merge_queue(value, queue, key, where, faults)
        elif isinstance(value, dict) and key.startswith(DESTINATIONS):
            value["queue"] = queue
        model: type[Section] = DestinationSettings if key.startswith(DESTINATIONS) else ExportSettings
        try:
            found: Any = model.model_validate(value)
        except ValidationError as error:
            faults.extend(_faults(error, key, where))
        else:
            (destinations if key.startswith(DESTINATIONS) else exports).append(found)
    if not faults:
        faults.extend(_contradictions(destinations, exports, str(file)))
    return destinations, exports


def _items(file: Path, faults: list[SettingFault]) -> Iterator[tuple[str, Any, str]]:
    try:
        root = compose_file(file)
    except FileRefused:  # raised where the settings are read
        return
    for name, below in root.value if isinstance(root, yaml.MappingNode) else ():
        if name.value not in LISTS or (isinstance(below, yaml.ScalarNode) and plain(below) is None):
            continue
        if not isinstance(below, yaml.SequenceNode):
            where = f"{file} line {name.start_mark.line + 1}"
            faults.append(SettingFault(name.value, plain(below), f"a list of {name.value}", where))
            continue
        for index, node in enumerate(below.value):
            yield f"{name.value}.{index}", plain(node), f"{file} line {node.start_mark.line + 1}"


def _merge_queue(
    value: dict[str, Any], base: SendQueueSettings, key: str, where: str, faults: list[SettingFault]
) -> None:
    given = value["queue"]
    if key.startswith(EXPORTS) or not isinstance(given, dict):
        return
    own = {("mode" if name == "type" else name): below for name, below in given.items()}
    if {"mode", "type"} <= given.keys() and given["mode"] != given["type"]:
        allowed = f"the same as mode, which is {given['mode']}: they are two names of one key"
        faults.append(SettingFault(f"{key}.queue.type", given["type"], allowed, where))
    # What stands with the destination is nearer than what stands for all.
    is_written = "max_bytes" in own or (base.is_max_bytes_written and "memory_percent" not in own)
    try:
        found = SendQueueSettings.model_validate(_overlaid(base.model_dump(), own))
        value["queue"] = found.with_max_bytes_written(is_written)
    except ValidationError as error:
        faults.extend(_faults(error, f"{key}.queue", where))
        value["queue"] = base


def _overlaid(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in own.items():
        is_section = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = _overlaid(base[name], value) if is_section else value
    return merged


def _faults(error: ValidationError, key: str, where: str) -> Iterable[SettingFault]:
    for found in error.errors(include_url=False):
        place = ".".join([key, *(str(part) for part in found["loc"])])
        own = found.get("ctx", {}).get("error")
        shown = MASK if "headers" in found["loc"][:-1] else _shown(found.get("input"))
        yield SettingFault(place, shown, str(own) if isinstance(own, ValueError) else str(found["msg"]), where)


def _shown(value: object) -> object:
    return masked(value) if isinstance(value, str) else None if isinstance(value, dict | list) else value


def _contradictions(
    destinations: Sequence[DestinationSettings], exports: Sequence[ExportSettings], where: str
) -> Iterator[SettingFault]:
    for kind, items in ((DESTINATIONS, destinations), (EXPORTS, exports)):
        names = [item.name for item in items]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield SettingFault(f"{kind}.name", name, "each name once", where)
    known = {destination.name for destination in destinations}
    for export in exports:
        if export.to not in known:
            allowed = "one of destinations: " + (", ".join(sorted(known)) or "(there are none)")
            yield SettingFault(f"exports.{export.name}.to", export.to, allowed, where)
    sources = [(export.queue, export.group) for export in exports]
    for export in exports:
        if sources.count((export.queue, export.group)) > 1:
            yield SettingFault(f"exports.{export.name}.from", export.source, "a group for each export", where)
