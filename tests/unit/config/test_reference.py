"""The reference page is what the model says."""

from __future__ import annotations

from pathlib import Path

from forebay.config.keys import KEYS
from forebay.config.profiles import PROFILES
from forebay.config.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_page_on_disk_is_the_generated_text() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "regenerate it: python -m forebay.config.reference > docs/reference/settings.md"
    )


def test_page_names_every_key_with_its_environment_name_flag_and_default() -> None:
    rows = {line.split("|")[1].strip(): line for line in reference().splitlines() if line.startswith("| `")}
    for key in KEYS.values():
        [row] = [line for line in reference().splitlines() if f"`{key.environment}`" in line]
        assert {f"`{key.name}`", f"`{key.default}`"} <= {cell.strip() for cell in row.split("|")}
        assert f"`{key.flag}`" in row
        assert key.description in row
    assert rows


def test_page_has_a_column_for_every_profile() -> None:
    [heads] = [line for line in reference().splitlines() if line.startswith("| key | `")]
    assert [cell.strip(" `") for cell in heads.split("|")[2:-1]] == list(PROFILES)
