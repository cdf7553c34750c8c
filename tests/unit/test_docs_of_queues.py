"""The page about queues says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.model.queue import QueueOptions, options_to_wire

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "queues.md"


def test_page_lists_every_option_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+)", PAGE.read_text(), re.MULTILINE))
    defaults = {name: str(value).lower() for name, value in options_to_wire(QueueOptions()).items()}
    assert listed == defaults
