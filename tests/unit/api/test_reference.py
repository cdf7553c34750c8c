"""The REST reference is what the routes say, and knows every error code."""

from __future__ import annotations

import re
from pathlib import Path

import forebay.api
from forebay.api.problems import CODES, STATUSES, TITLES
from forebay.api.reference import reference
from forebay.api.routes import API_ROUTES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rest.md"
SOURCES = Path(forebay.api.__file__).parent


def test_page_on_disk_is_the_generated_text() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "regenerate it: python -m forebay.api.reference > docs/reference/rest.md"
    )


def test_page_has_every_operation_with_its_scope_and_its_parameters() -> None:
    sections = {section.partition("\n")[0]: section for section in reference().split("### ")}
    for route in API_ROUTES:
        section = sections[f"`{route.method} {route.path}`"]
        assert all(f"`{scope}`" in section for scope in route.scopes)
        assert all(f"| `{parameter.name}` |" in section for parameter in route.query)
        assert all(f"- {status}: " in section for status in route.answers if status not in route.problems)


def test_every_code_that_the_api_answers_with_is_explained() -> None:
    explained = {code for code, _, _ in CODES} | {code for _, _, code in STATUSES}
    literal = re.compile(r'code="(\w+)"|unavailable\([^()]*(?:\([^()]*\)[^()]*)*"(\w+)"\s*\)')
    used = {first or second for file in SOURCES.rglob("*.py") for first, second in literal.findall(file.read_text())}
    assert {"maintenance", "busy", "recovering", "too_large"} <= used
    # `refused` is what a problem is called that was given no code.
    assert used - {"refused"} <= explained
    assert {code for code, _, _ in CODES} <= used
    assert all(status in TITLES for _, status, _ in CODES)
