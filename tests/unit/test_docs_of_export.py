"""The guide on export: every YAML snippet is a right settings file, every key and metric it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from forebay.config.export_model import SendQueueSettings
from forebay.config.keys import KEYS
from forebay.config.lists import OBEYED
from forebay.config.load import Loaded, load
from forebay.config.profiles import PROFILES
from forebay.telemetry.metrics import METRICS
from unit.config.test_governor_settings import REFERENCE

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "export.md").read_text()
SNIPPETS = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
OF_ITS_FLAGS = {
    "memory_percent": "0.10",
    "adaptive_enabled": "true",
    "target_utilization": "0.85",
    "max_retry_delay": "5m",
}
"""Flags of metrics-governor's reference that its YAML does not show."""
SUFFIXES = {metric.suffix for group in METRICS.values() for metric in group}


def loaded(snippet: str, folder: Path) -> Loaded:
    file = folder / "forebay.yaml"
    file.write_text(snippet)
    return load(file=file)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_every_snippet_is_a_right_settings_file(snippet: str, tmp_path: Path) -> None:
    found = loaded(snippet, tmp_path)
    written = yaml.safe_load(snippet)
    assert len(found.destinations) == len(written.get("destinations", []))
    assert len(found.exports) == len(written.get("exports", []))


def test_there_is_a_snippet_for_every_type_of_destination_and_every_mode() -> None:
    written = [yaml.safe_load(snippet) for snippet in SNIPPETS]
    types = {one["type"] for file in written for one in file.get("destinations", [])}
    assert types == {"otlp_http", "otlp_grpc", "remote_write", "http", "queue", "file"}
    assert {file["exporter"]["queue"].get("mode") for file in written if "exporter" in file} > {
        "memory",
        "disk",
        "hybrid",
    }


def test_every_metric_of_the_table_of_symptoms_exists() -> None:
    table = GUIDE.partition("## Troubleshooting")[2]
    named = re.findall(r"`((?:queue|export|circuit_breaker|memqueue|fastqueue|batch)_[a-z_]+)[`{]", table)
    assert len(named) > 10
    assert [name for name in named if name not in SUFFIXES] == []


def test_the_table_of_profiles_is_what_profiles_are() -> None:
    for name in PROFILES:
        row = next(line for line in GUIDE.splitlines() if re.match(rf"\| `{name}`( \(default\))? \|", line))
        cells = [cell.strip(" `") for cell in row.split("|")[2:5]]
        found = load(flags={"profile": name}).values()
        values = [found[f"exporter.queue.{key}"] for key in ("mode", "max_size", "max_bytes")]
        assert [cells[0], int(cells[1].replace(",", "")), cells[2]] == values


def test_defaults_that_the_guide_tells_are_those_of_the_settings() -> None:
    told = re.findall(r"`(\w+)` \((\d[\w.]*(?: s| min)?)(?: s)?[,)]", GUIDE)
    assert len(told) > 5
    for key, value in told:
        names = [name for name in KEYS if name.startswith("exporter.") and name.rpartition(".")[2] == key]
        for name in names:
            assert KEYS[name].default.rstrip("0").rstrip(".") in (value.replace(" s", "s").replace(" min", "m"), value)


def test_every_default_that_is_not_the_one_of_metrics_governor_is_in_the_guide() -> None:
    table = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)`([^|]*)\| \w", GUIDE, re.MULTILINE)
    told = {key: (there, here) for key, there, here, _ in table}
    reference = yaml.safe_load(REFERENCE)["exporter"]["queue"] | OF_ITS_FLAGS
    reference.pop("type")  # it shows mode `disk`; the default of both is `memory`
    there, here = SendQueueSettings.model_validate(reference), SendQueueSettings()
    assert {key for key in reference if getattr(there, key) != getattr(here, key)} == set(told)
    for key, (of_theirs, of_ours) in told.items():
        assert str(reference[key]) == of_theirs
        assert key == "path" or KEYS[f"exporter.queue.{key}"].default == of_ours


def test_the_table_of_keys_of_destinations_names_every_key() -> None:
    table = GUIDE.partition("keys, beside `name`")[2].partition("A key that a type")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert set().union(*OBEYED.values()) <= named
    assert set(OBEYED) <= named
