"""The file of `spark.properties`: a name and a value per line, whatever the value holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.cli.flow_session import properties_of
from forebay.config.model import SparkSettings
from forebay.errors import Permanent


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("spark.x 1", "1"),
        ("spark.x=1", "1"),
        ("spark.x = 1", "1"),
        ("spark.x\t1", "1"),
        ("  spark.x  -XX:TieredStopAtLevel=1 -Dkey=a=b  ", "-XX:TieredStopAtLevel=1 -Dkey=a=b"),
        ("spark.x=-Dkey=value", "-Dkey=value"),
    ],
)
def test_value_keeps_its_own_equals_signs(line: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "properties"
    file.write_text(f"# a comment\n\n{line}\n")
    assert properties_of(SparkSettings(properties=str(file))) == {"spark.x": value}


@pytest.mark.parametrize("line", ["spark.x", "spark.x="])
def test_name_without_a_value_is_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "properties"
    file.write_text(line)
    with pytest.raises(Permanent, match=r"line 1: 'spark\.x' has no value"):
        properties_of(SparkSettings(properties=str(file)))
