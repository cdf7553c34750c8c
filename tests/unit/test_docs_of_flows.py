"""The flows that the guide and the README show are flows that Forebay takes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from forebay.flows import find_flows

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/guides/flows.md", "examples/metrics-governor/README.md")


def shown() -> list[str]:
    """Every YAML of these pages that has a whole flow."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
            text = textwrap.dedent(block)
            if "source:" in text:
                found.append(text if "flows:" in text else f"flows:\n{text}")
    return found


@pytest.mark.parametrize("text", shown())
def test_flow_of_a_page_has_no_fault(text: str, tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text(text)
    found = find_flows(file, is_code_loaded=False)
    assert [str(fault) for fault in found.faults] == []
    assert found.flows


def test_pages_show_flows_of_parcels() -> None:
    assert len(shown()) >= 4
