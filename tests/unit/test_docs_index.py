"""The documentation's index leaves nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("folder", ["concepts", "decisions", "guides", "internals", "reference"])
def test_every_page_is_in_the_index(folder: str) -> None:
    index = (DOCS / "index.md").read_text()
    pages = sorted(page.relative_to(DOCS).as_posix() for page in (DOCS / folder).glob("*.md"))
    assert pages
    assert [page for page in pages if f"({page})" not in index] == []
