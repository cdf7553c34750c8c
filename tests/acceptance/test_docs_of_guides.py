"""What the guides show runs: Python snippets against a server, and every command of `forebay` with its options."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from forebay.api.routes import ALL_ROUTES
from forebay.api.routing import Router
from forebay.broker.stores.embedded.database import VERSION
from forebay.broker.stores.postgres.migrations import migrations
from forebay.cli.app import LazyGroup, root_command
from forebay.cli.listing import ListingGroup
from forebay.client import Client
from forebay.testing.running_server import RunningServer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", DOCS / "quickstart.md", *(DOCS / "guides").glob("*.md")])
SHELL = ("", "sh", "console", "bash")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield block


def python(snippet: str, url: str, folder: Path) -> str:
    program = snippet.replace("http://127.0.0.1:6632", url)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_snippets_of_the_client_do_what_the_page_says(forebay_server: RunningServer, tmp_path: Path) -> None:
    url = forebay_server.url
    *snippets, fixture = blocks(DOCS / "guides" / "python-client.md", "python")
    sync, asynchronous, consume, transaction, retries, errors = snippets
    assert python(sync, url, tmp_path) == "queued log\n{'id': 7}\n"
    assert python(asynchronous, url, tmp_path) == "{'id': 7}\n"
    assert python(consume, url, tmp_path) == "handled 7\nhandled 8\nhandled 9\n"
    assert python(transaction, url, tmp_path) == "{'order': 7}\n"
    assert python(retries, url, tmp_path) == "queued duplicate True\n"
    refused, unreachable = python(errors, url, tmp_path).splitlines()
    assert re.match(r"400 options\.leaseTime: .* from 1 to", refused)
    assert unreachable.startswith("Unreachable ")
    (tmp_path / "test_billing.py").write_text(fixture)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def commands() -> Iterator[tuple[str, str]]:
    """Each line of a shell block that calls `forebay`, with its page."""
    for page in PAGES:
        for block in blocks(page, *SHELL):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*forebay (?!: )(.*)", line.strip())
                if found and not line.strip().startswith("forebay: "):
                    yield page.name, found[1]
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for words in re.findall(r"`forebay ([a-z][^`]*)`", prose):
            yield page.name, " ".join(words.split())


def words_of(line: str) -> list[str]:
    """Up to where the shell goes on with something else."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        words.append(word)
    return words


def faults_of(line: str) -> Iterator[str]:
    """What of a command line is not known."""
    command: Any = root_command()
    words = words_of(line)
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name = words.pop(0)
        below = command.loaded(name) if isinstance(command, LazyGroup) else command.commands.get(name)
        if below is None:
            yield f"no command {name!r}"
            return
        command = below
    if isinstance(command, ListingGroup):
        command = command.commands[command.command_alone]
    known = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
    for word in words:
        option = re.sub(r"^-(?=\w\w)", "--", word.partition("=")[0])  # long options work with one dash
        if re.match(r"--?[a-z]", word) and option not in known | {"--help", "-h", "--version"}:
            yield f"no option {word!r}"


def test_every_command_of_the_guides_is_known_with_its_options() -> None:
    lines = list(commands())
    faults = [f"{page}: forebay {line}: {fault}" for page, line in lines for fault in faults_of(line)]
    assert faults == []
    assert len(lines) > 150


def test_every_path_of_the_guides_is_a_route() -> None:
    router = Router(ALL_ROUTES)
    known = {route.path for route in ALL_ROUTES}
    for page in PAGES:
        for method, path in re.findall(r"`(GET|POST|DELETE) (/[^\s`?]+)", page.read_text()):
            if "…" in path or "*" in path:
                continue
            shape = re.sub(r"\{[^}]*\}", "x", path)
            assert path in known or router.find(method, shape.encode()), f"{page.name}: {method} {path}"


def test_what_was_pushed_since_an_upgrade_is_pushed_over_once(tmp_path: Path) -> None:
    (snippet,) = blocks(DOCS / "guides" / "upgrading.md", "python")
    with RunningServer(tmp_path / "newer") as newer, RunningServer(tmp_path / "older") as older:
        with Client(newer.url) as client:
            client.push("orders/berlin", {"id": 7}, transaction_id="order-7")
            client.push("orders/berlin", {"id": 8})
        with Client(older.url) as client:
            client.push("orders/berlin", {"id": 7}, transaction_id="order-7")
            for _ in range(2):
                python(snippet.replace("http://127.0.0.1:6633", newer.url), older.url, tmp_path)
            assert [message["data"]["id"] for message in client.read("orders")] == [7, 8]


def test_figures_beside_peers_are_those_that_were_measured() -> None:
    page = (DOCS / "guides" / "coming-from.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) >= 6
    measured = {
        (result["name"], result["against"]): result
        for result in json.loads((ROOT / "bench" / "broker.json").read_text())["results"]
    }
    for name, peer, ours, theirs, ratio in rows:
        result = measured[name, peer]
        assert (ours, theirs) == (f"{result['value']:,.0f}", f"{result['against_value']:,.0f}")
        assert ratio == f"{result['ratio']:.1f}"


@pytest.mark.parametrize(("what", "number"), [("SQLite", VERSION), ("PostgreSQL", len(migrations()))])
def test_page_of_upgrading_names_the_formats_in_force(what: str, number: int) -> None:
    page = (DOCS / "guides" / "upgrading.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| ") and what in line and "| **" in line]
    assert f"**{number}**" in row
