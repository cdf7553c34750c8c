"""The page of queue options is what the model says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from forebay.model.queue import OPTIONS, OptionsRefused, QueueOptions, options_from_wire, options_to_wire
from forebay.model.queue_reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "queue-options.md"


def test_page_on_disk_is_the_generated_text() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "regenerate it: python -m forebay.model.queue_reference > docs/reference/queue-options.md"
    )


def test_page_lists_every_option_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+)", reference(), re.MULTILINE))
    assert listed == {name: str(value).lower() for name, value in options_to_wire(QueueOptions()).items()}
    assert {option.field for option in OPTIONS.values()} == {field.name for field in dataclasses.fields(QueueOptions)}


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.kind is int])
def test_the_bounds_on_the_page_are_those_that_hold(name: str) -> None:
    option = OPTIONS[name]
    for allowed in (option.lowest, option.highest):
        assert options_to_wire(options_from_wire({name: allowed}))[name] == allowed
    for refused in (option.lowest - 1, option.highest + 1):
        with pytest.raises(OptionsRefused, match=name):
            options_from_wire({name: refused})
