"""OTLP metrics as Prometheus series, by the rules of Prometheus' own OTLP receiver.

| OTLP | Prometheus |
|---|---|
| metric name | characters that Prometheus does not know become `_`; the unit is a suffix (`_seconds`, `_ratio`) |
| monotonic sum | `…_total` |
| histogram | `…_bucket{le}`, `…_sum`, `…_count` |
| summary | `…{quantile}`, `…_sum`, `…_count` |
| `service.namespace`/`service.name` of the resource | label `job` |
| `service.instance.id` | label `instance` |
| other attributes of the resource | labels of `target_info`, one sample at the newest time of the resource |
| no recorded value | the stale marker |

Sums and histograms with delta temporality, exponential histograms, and metrics without a name have no such form: they
are counted as rejected.

Characters of attribute names that Prometheus does not know become `_`; values of attributes whose names are the same
then are joined with `;`, in the order of their names. `__name__`, `job`, `instance`, `le` and `quantile` are set from
what the table says, and an attribute of that name gives way. An empty value is no label at all, as in Prometheus.

What is slow is the labels: a series' labels are encoded once and remembered, up to `SERIES_MAX` series. The rest of a
series is written by hand: protobuf's objects would cost more than the samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import parsed

SERIES_MAX = 200_000
CUMULATIVE = 2
NO_RECORDED_VALUE = 1
_SAMPLE_VALUE = Struct("<Bd")
STALE = Struct("<Q").pack(0x7FF0000000000002)

_UNITS = {
    "d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds",
    "ns": "nanoseconds", "By": "bytes", "KiBy": "kibibytes", "MiBy": "mebibytes", "GiBy": "gibibytes",
    "TiBy": "tibibytes", "KBy": "kilobytes", "MBy": "megabytes", "GBy": "gigabytes", "TBy": "terabytes", "m": "meters",
    "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "g": "grams", "Cel": "celsius", "Hz": "hertz",
    "%": "percent",
}  # fmt: skip
_PER_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_BAD_IN_NAME = re.compile(r"[^a-zA-Z0-9_:]+")
_BAD_IN_LABEL = re.compile(r"[^a-zA-Z0-9_]")

Labels = list[tuple[str, str]]


@dataclass(slots=True)
class Converted:
    """A WriteRequest, encoded, and what did not fit into it."""

    body: bytes
    samples: int
    rejected: int = 0
    reasons: set[str] = field(default_factory=set)


class Converter:
    """Turns OTLP metrics into remote write requests. May be used by one thread at a time."""

    def __init__(self, *, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._encoded: dict[tuple[object, ...], bytes] = {}

    def convert(self, body: bytes) -> Converted:
        """Raises ValueError for what is no OTLP request."""
        request = parsed(Kind.METRICS, body)
        converted = Converted(b"", 0)
        series: list[bytes] = []
        for group in request.resource_metrics:
            _Resource(self, group, converted, series).convert()
        converted.body = b"".join(series)
        return converted

    def labels(self, key: tuple[object, ...], make: Callable[[], Mapping[str, str]]) -> bytes:
        """The labels of a series, encoded; `make` gives them when they are not remembered."""
        found = self._encoded.get(key)
        if found is None:
            if len(self._encoded) >= self._series_max:
                self._encoded.clear()
            found = self._encoded[key] = _encoded_labels(make())
        return found


class _Resource:
    """One resource's metrics on their way to series."""

    def __init__(self, converter: Converter, group: Any, converted: Converted, series: list[bytes]) -> None:
        self._converter = converter
        self._group = group
        self._converted = converted
        self._series = series
        self._attributes = [(pair.key, attribute_text(pair.value)) for pair in group.resource.attributes]
        known = dict(self._attributes)
        service = known.get("service.name", "")
        namespace = known.get("service.namespace", "")
        self._identity: Labels = []
        if service:
            self._identity.append(("job", f"{namespace}/{service}" if namespace else service))
        if instance := known.get("service.instance.id", ""):
            self._identity.append(("instance", instance))
        self._key = tuple(self._identity)
        self._newest_ms = 0
        self._at_ms, self._at = 0, b"\x10" + _varint(0)

    def convert(self) -> None:
        for scope in self._group.scope_metrics:
            for metric in scope.metrics:
                self._metric(metric)
        self._target_info()

    def _metric(self, metric: Any) -> None:
        kind = metric.WhichOneof("data")
        if kind is None:
            return None
        data = getattr(metric, kind)
        reason = _why_no_form(metric, kind, data)
        if reason is not None:
            return self._reject(len(data.data_points), reason)
        is_counter = kind == "sum" and data.is_monotonic
        name = prometheus_name(metric.name, metric.unit, is_counter=is_counter, is_gauge=kind == "gauge")
        convert = {"histogram": self._histogram, "summary": self._summary}.get(kind, self._number)
        for point in data.data_points:
            convert(name, point)
        return None

    def _reject(self, points: int, reason: str) -> None:
        self._converted.rejected += points
        self._converted.reasons.add(reason)

    def _number(self, name: str, point: Any) -> None:
        value = float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double
        self._add(name, point, value)

    def _histogram(self, name: str, point: Any) -> None:
        count = 0
        for bound, in_bucket in zip(point.explicit_bounds, point.bucket_counts, strict=False):
            count += in_bucket
            self._add(name + "_bucket", point, float(count), ("le", _number_text(bound)))
        self._add(name + "_bucket", point, float(point.count), ("le", "+Inf"))
        if point.HasField("sum"):
            self._add(name + "_sum", point, point.sum)
        self._add(name + "_count", point, float(point.count))

    def _summary(self, name: str, point: Any) -> None:
        for entry in point.quantile_values:
            self._add(name, point, entry.value, ("quantile", _number_text(entry.quantile)))
        self._add(name + "_sum", point, point.sum)
        self._add(name + "_count", point, float(point.count))

    def _add(self, name: str, point: Any, value: float, extra: tuple[str, str] | None = None) -> None:
        # Nearly all are text that is not empty: asking which kind a value is costs more than reading it.
        attributes = [(pair.key, pair.value.string_value or attribute_text(pair.value)) for pair in point.attributes]
        key = (name, self._key, extra, *attributes)
        labels = self._converter.labels(key, lambda: self._labels_of(name, attributes, extra))
        at_ms = point.time_unix_nano // 1_000_000
        self._newest_ms = max(self._newest_ms, at_ms)
        raw = STALE if point.flags & NO_RECORDED_VALUE else None
        self._append(labels, value, at_ms, raw)

    def _labels_of(self, name: str, attributes: Labels, extra: tuple[str, str] | None) -> dict[str, str]:
        own = [("__name__", name), *self._identity, *([extra] if extra else [])]
        return clean_labels(attributes) | dict(own)

    def _append(self, labels: bytes, value: float, at_ms: int, raw: bytes | None = None) -> None:
        if at_ms != self._at_ms:  # points of a request have few times
            self._at_ms, self._at = at_ms, b"\x10" + _varint(at_ms)
        sample = (b"\x09" + raw if raw else _SAMPLE_VALUE.pack(0x09, value)) + self._at
        series = labels + b"\x12" + _length(len(sample)) + sample
        self._series.append(b"\x0a" + _length(len(series)) + series)
        self._converted.samples += 1

    def _target_info(self) -> None:
        identity = {"service.name", "service.namespace", "service.instance.id"}
        rest = [pair for pair in self._attributes if pair[0] not in identity]
        if rest and self._identity and self._newest_ms:
            key = ("target_info", self._key, None, *rest)
            labels = self._converter.labels(key, lambda: self._labels_of("target_info", rest, None))
            self._append(labels, 1.0, self._newest_ms)


def without_form(request: Any) -> tuple[int, set[str]]:
    """How many data points of an OTLP request the converter would reject, and why: without converting them."""
    rejected, reasons = 0, set[str]()
    for group in request.resource_metrics:
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind) if kind else None
                reason = _why_no_form(metric, kind, data) if kind else None
                if reason is not None and data is not None and data.data_points:
                    rejected += len(data.data_points)
                    reasons.add(reason)
    return rejected, reasons


def _why_no_form(metric: Any, kind: str, data: Any) -> str | None:
    is_cumulative = kind not in ("sum", "histogram") or data.aggregation_temporality == CUMULATIVE
    return why_no_form(metric.name, kind, is_cumulative=is_cumulative)


def why_no_form(name: str, kind: str, *, is_cumulative: bool) -> str | None:
    """Why a metric cannot become series; None if it can."""
    if kind == "exponential_histogram":
        return "exponential histograms have no form in remote write 1.0"
    if kind in ("sum", "histogram") and not is_cumulative:
        return f"{kind}s have to be cumulative"
    return None if name.strip("_") else "a metric needs a name"


def prometheus_name(name: str, unit: str, *, is_counter: bool, is_gauge: bool) -> str:
    """`http.server.duration` in `ms` is `http_server_duration_milliseconds`."""
    words = [word for word in _BAD_IN_NAME.sub("_", name).split("_") if word]
    main, _, per = unit.partition("/")
    for suffix in (_unit_word(main), f"per_{_PER_UNITS.get(per, per)}" if per and "{" not in per else ""):
        if suffix and suffix not in words:
            words.append(suffix)
    if is_counter:
        words = [word for word in words if word != "total"] + ["total"]
    if is_gauge and unit == "1":
        words = [word for word in words if word != "ratio"] + ["ratio"]
    found = "_".join(words)
    return f"_{found}" if found[:1].isdigit() else found


def _unit_word(unit: str) -> str:
    if "{" in unit or unit in ("", "1"):
        return ""
    return _UNITS.get(unit, _BAD_IN_NAME.sub("_", unit).strip("_"))


def attribute_text(value: Any) -> str:
    """The value of an attribute as text; lists and maps are JSON."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind in ("int_value", "double_value"):
        return str(getattr(value, kind))
    if kind is None:
        return ""
    from google.protobuf import json_format

    return str(json_format.MessageToJson(value, indent=None))


def _number_text(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def clean_labels(attributes: Labels) -> dict[str, str]:
    """Attributes as labels. Values of those whose names become the same are joined with `;`."""
    merged: dict[str, str] = {}
    for name, value in sorted(attributes):
        clean = _BAD_IN_LABEL.sub("_", name)
        clean = f"key_{clean}" if clean[:1].isdigit() else clean
        if value and clean:
            merged[clean] = f"{merged[clean]};{value}" if clean in merged else value
    return merged


def _encoded_labels(labels: Mapping[str, str]) -> bytes:
    """Sorted by name, as Prometheus wants them."""
    return b"".join(_encoded_label(name.encode(), value.encode()) for name, value in sorted(labels.items()))


def _encoded_label(name: bytes, value: bytes) -> bytes:
    pair = b"\x0a" + _varint(len(name)) + name + b"\x12" + _varint(len(value)) + value
    return b"\x0a" + _varint(len(pair)) + pair


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    pieces: list[int] = []
    while value >= 0x80:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


_SMALL: Sequence[bytes] = [bytes([value]) for value in range(0x80)]


_LENGTHS = [_varint(length) for length in range(1024)]


def _length(length: int) -> bytes:
    return _LENGTHS[length] if length < len(_LENGTHS) else _varint(length)
