"""The dashboard and the alert rules speak of metrics that are declared, by labels that those have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from forebay.telemetry.metrics import METRICS, Metric

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "deploy/grafana/forebay.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
GUIDE = ROOT / "docs/guides/monitoring.md"
FROM_PROMETHEUS = {"instance", "job", "le"}
WORDS = {"by", "sum", "max", "min", "rate", "increase", "delta", "deriv", "topk", "and", "or", "up",
         "histogram_quantile", "predict_linear"}  # fmt: skip


def declared() -> dict[str, Metric]:
    """By every name that a page has of them."""
    found: dict[str, Metric] = {}
    for metric in (metric for section in METRICS.values() for metric in section):
        endings = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        found |= {metric.name + ending: metric for ending in endings}
    return found


def panel_expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def variables() -> Iterator[str]:
    """What the dashboard asks for its choices by, as expressions."""
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((.*), (\w+)\)", r"max by (\2) (\1)", variable["definition"])


def rules() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    return [*panel_expressions(), *(str(rule["expr"]) for rule in rules())]


def names_in(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)|\"[^\"]*\"", "", expression)
    return set(re.findall(r"[a-z_][a-z0-9_]*", bare)) - WORDS


def labels_in(expression: str) -> set[str]:
    matched = {name for text in re.findall(r"\{([^}]*)\}", expression) for name in re.findall(r"(\w+)[!=]~?", text)}
    grouped = {name.strip() for text in re.findall(r"by \(([^)]*)\)", expression) for name in text.split(",")}
    return matched | grouped


def test_everything_that_is_shown_or_alerted_by_is_declared_with_its_labels() -> None:
    known = declared()
    assert len(expressions()) > 60
    for expression in [*expressions(), *variables()]:
        names = names_in(expression)
        assert names <= known.keys(), expression
        labels = FROM_PROMETHEUS.union(*(known[name].labels for name in names))
        assert labels_in(expression) <= labels, expression


def test_a_counter_is_never_shown_as_it_stands_and_a_gauge_never_as_a_rate() -> None:
    known = declared()
    for expression in expressions():
        for name in names_in(expression):
            is_counted = known[name].type in ("counter", "histogram")
            is_rate = re.search(rf"(rate|increase)\({name}\b", expression) is not None
            assert is_counted == is_rate, expression


def test_every_alert_says_how_bad_it_is_and_stands_in_the_guide() -> None:
    guide = GUIDE.read_text()
    names = [str(rule["alert"]) for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")  # type: ignore[index]
        assert "summary" in rule["annotations"]  # type: ignore[operator]
        assert f"`{rule['alert']}`" in guide, f"{rule['alert']} is not explained in {GUIDE.name}"
    assert set(re.findall(r"`(Forebay[A-Z]\w+)`", guide)) == set(names)


def test_panels_do_not_overlap_and_each_has_a_name_and_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
