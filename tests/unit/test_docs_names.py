"""What pages and essays name is there: modules, settings, metrics, files, and how many connections a server holds."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from forebay.broker.stores.postgres.connections import Database
from forebay.config.keys import KEYS
from forebay.telemetry.metrics import METRICS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "forebay"
ROOMS = {path.name for path in SOURCE.iterdir() if path.is_dir()}
STORES = ("", "broker/", "broker/stores/")
"""What may be left out in front of a module's name: `embedded.database`, `stores.postgres`."""
SECTIONS = {name.partition(".")[0] for name in KEYS if "." in name}
OF_SPARK = re.compile(r"spark\.(read|sql|forebay|python)\b")
"""Spark's own words begin like our room and our section."""
NO_METRICS = {"forebay_session", "forebay_server", "forebay_client"}
CONNECTIONS = (
    r"holds up to (\d+): (\d+) for pushes, (\d+) for what is durable, (\d+) for delivery, (\d+) for browsing, "
    r"(\d+) for dispatch, keys and the audit log, (\d+) for notices"
)
PAGES = [
    *sorted(page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "reference"),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("deploy/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
]
ESSAYS = sorted(SOURCE.rglob("*.py"))


def words(file: Path) -> Iterator[str]:
    """What stands in backticks on a page, or in a module's docstring."""
    text = file.read_text()
    if file.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    yield from re.findall(r"`([^`\n]+)`", text)


def is_in_source(dotted: str) -> bool:
    """Whether it is a module, or a name that stands in one."""
    above, _, last = dotted.rpartition(".")
    for start in STORES:
        path = SOURCE / (start + dotted.replace(".", "/"))
        if path.is_dir() or path.with_suffix(".py").exists():
            return True
        holder = SOURCE / (start + above.replace(".", "/"))
        for file in (holder.with_suffix(".py"), holder / "__init__.py"):
            if file.exists() and re.search(rf"\b{last}\b", file.read_text()):
                return True
    return False


def is_setting(dotted: str) -> bool:
    return dotted in KEYS or any(name.startswith(dotted + ".") for name in KEYS)


def is_known(dotted: str) -> bool:
    """A module or a setting; or something else, whose name begins like neither."""
    first = dotted.partition(".")[0]
    if first in ROOMS | {"embedded", "stores"}:
        return is_in_source(dotted) or is_setting(dotted)
    return first not in SECTIONS or is_setting(dotted)


def test_modules_and_settings_that_are_named_are_there() -> None:
    unknown = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in (*PAGES, *ESSAYS)
        for word in words(file)
        if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)+", word)
        and not word.endswith((".py", ".md"))
        and not OF_SPARK.match(word)
        and not is_known(word.removeprefix("forebay."))
    ]
    assert unknown == []


def test_metrics_that_pages_name_are_there() -> None:
    known = {metric.name for group in METRICS.values() for metric in group}
    for page in PAGES:
        for word in words(page):
            name = word.partition("{")[0].rstrip("…")
            if name.startswith("forebay_") and name not in NO_METRICS:
                assert name in known or any(other.startswith(name) for other in known), f"{page.name}: {word}"


def test_files_that_pages_name_are_there() -> None:
    for page in PAGES:
        folder = ROOT
        for word in words(page):
            where = f"{page.relative_to(ROOT)}: {word}"
            if re.match(r"(src|tests|scripts|bench|deploy|examples|packages)/[^ ]+$", word) and "NAME" not in word:
                assert list(ROOT.glob(word.rstrip("/"))), where
                folder = ROOT / word if word.endswith("/") else (ROOT / word).parent
            elif page.name == "ARCHITECTURE.md" and re.fullmatch(r"[a-z_]+\.py", word) and word != "reference.py":
                assert (folder / word).exists() or (SOURCE / word).exists(), where


def test_essay_of_dispatch_names_its_modules() -> None:
    essay = ast.get_docstring(ast.parse((SOURCE / "dispatch" / "__init__.py").read_text())) or ""
    (listed,) = re.findall(r"^The modules: (.*?)\n\n", essay, re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`([a-z_]+)/?`", listed):
        path = SOURCE / "dispatch" / name
        assert path.is_dir() or path.with_suffix(".py").exists(), name


def test_connections_of_a_server_are_those_that_the_page_counts() -> None:
    page = " ".join((ROOT / "docs" / "guides" / "operating.md").read_text().split())
    (total, pushes, *pools, notices) = map(int, re.search(CONNECTIONS, page).groups())  # type: ignore[union-attr]
    given = inspect.signature(Database).parameters
    assert pools == [given[f"{name}_max"].default for name in ("durable", "delivery", "browsing", "rooms")]
    assert total == pushes + sum(pools) + notices
