"""Samples of metrics as a page for Prometheus (text format 0.0.4)."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.errors import InvariantBroken
from forebay.model.histogram import Distribution
from forebay.telemetry.metrics import Metric


class Page:
    """Collects samples. A metric's samples stand together, whatever the order in which they are added."""

    def __init__(self, namespace: str = "forebay") -> None:
        self._namespace = namespace
        self._samples: dict[Metric, list[str]] = {}

    def declare(self, *metrics: Metric) -> None:
        """Show a metric although it may have no sample yet."""
        for metric in metrics:
            self._samples.setdefault(metric, [])

    def add(self, metric: Metric, value: float, *labels: object) -> None:
        """Add a sample; `labels` are the values of the metric's labels, in order."""
        if len(labels) != len(metric.labels):
            raise InvariantBroken(f"metric {metric.name} has labels {metric.labels}, and got {len(labels)}")
        shown = labels_text(metric.labels, labels)
        self._samples.setdefault(metric, []).append(f"{self._name(metric)}{shown} {_number(value)}")

    def add_block(self, metric: Metric, block: str) -> None:
        """Add many samples that `sample_lines` has written."""
        self._samples.setdefault(metric, []).extend([block] if block else [])

    def add_histogram(self, metric: Metric, found: Distribution, *labels: object) -> None:
        """Add a distribution: its buckets, each with all that is shorter too, their sum and their count."""
        name, names, below = self._name(metric), (*metric.labels, "le"), 0
        samples = self._samples.setdefault(metric, [])
        for bound, count in zip((*map(_number, found.bounds), "+Inf"), found.counts, strict=True):
            below += count
            samples.append(f"{name}_bucket{labels_text(names, (*labels, bound))} {below}")
        shown = labels_text(metric.labels, labels)
        samples += [f"{name}_sum{shown} {found.sum_seconds:.6f}", f"{name}_count{shown} {below}"]

    def _name(self, metric: Metric) -> str:
        return f"{self._namespace}_{metric.suffix}" if metric.is_governed else metric.name

    def lines(self) -> list[str]:
        """The page, without the line feed at its end."""
        found: list[str] = []
        for metric, samples in self._samples.items():
            name = self._name(metric)
            found += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}", *samples]
        return found


def labels_text(names: Sequence[str], values: Sequence[object]) -> str:
    """As they stand in a sample, braces included."""
    pairs = ",".join([f'{name}="{_escaped(str(value))}"' for name, value in zip(names, values, strict=True)])
    return f"{{{pairs}}}" if pairs else ""


def sample_lines(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """Samples of one metric, whose labels `labels_text` has written: for thousands of them."""
    return "\n".join([f"{name}{text} {value}" for text, value in zip(labels, values, strict=True)])


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
