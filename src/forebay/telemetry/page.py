"""Samples of metrics as a page for Prometheus (text format 0.0.4)."""

from __future__ import annotations

from forebay.errors import InvariantBroken
from forebay.telemetry.metrics import PREFIX, Metric


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
        pairs = ",".join(f'{name}="{_escaped(str(label))}"' for name, label in zip(metric.labels, labels, strict=True))
        shown = f"{{{pairs}}}" if pairs else ""
        self._samples.setdefault(metric, []).append(f"{self._name(metric)}{shown} {_number(value)}")

    def _name(self, metric: Metric) -> str:
        return f"{self._namespace}_{metric.suffix}" if metric.is_governed else PREFIX + metric.suffix

    def lines(self) -> list[str]:
        """The page, without the line feed at its end."""
        found: list[str] = []
        for metric, samples in self._samples.items():
            name = self._name(metric)
            found += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}", *samples]
        return found


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
