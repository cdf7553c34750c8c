"""The laws of the checkout itself: what a newcomer reads and runs first must hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def check_links(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "check_links.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_every_link_in_the_documentation_leads_somewhere() -> None:
    done = check_links(ROOT)
    assert done.returncode == 0, done.stderr


def test_link_check_finds_what_is_broken_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "words.md").write_text("# Words & more\n## Queue\n")
    (tmp_path / "README.md").write_text(
        "[fine](docs/words.md) [fine](docs/words.md#words--more) [fine](https://example.org/none)\n"
        "[gone](docs/gone.md) and [no heading](docs/words.md#lease)\n"
        "`[code](is/no/link.md)`\n```\n[nor](this.md)\n```\n"
    )
    done = check_links(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "README.md:2: docs/gone.md: no such file",
        "README.md:2: docs/words.md#lease: no such heading",
    ]


def test_lock_holds_names_and_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert lines
    condition = r"[a-z_]+ [<>=!]+ '[^']+'"
    pinned = re.compile(rf"[a-z0-9._-]+(\[[a-z0-9,_-]+\])?==[A-Za-z0-9.+!]+( ; {condition}( (and|or) {condition})*)?")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_make_alone_explains_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (help .*)$", makefile, re.MULTILINE)
    assert phony is not None
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == phony.group(1).split()


def test_cores_are_kept_busy_while_a_command_runs_and_its_exit_code_is_passed_on() -> None:
    count = "import os, pathlib; p = os.getppid(); print(pathlib.Path(f'/proc/{p}/task/{p}/children').read_text())"
    script = [sys.executable, str(ROOT / "scripts" / "keep_cores_busy.py"), sys.executable, "-c"]
    done = subprocess.run([*script, count], capture_output=True, text=True, check=True, timeout=60)
    children = done.stdout.split()
    assert len(children) == (os.cpu_count() or 1) + 1, "a process for each core, and the command"
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    failed = subprocess.run([*script, "raise SystemExit(3)"], check=False, timeout=60)
    assert failed.returncode == 3


def test_quickstart_example_runs_as_printed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    *_, example = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    assert done.stdout == printed


BLOCKED = """
import sys
import tomllib

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("forebay", "msgspec", "httptools"):
            raise ModuleNotFoundError(f"{name} is not installed", name=top)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import forebay
from forebay.client import AsyncClient, Client

print(forebay.__file__)
with Client("http://127.0.0.1:1", attempts=1) as client:
    for call in (lambda: client.push("orders", {"id": 7}), lambda: client.read_arrow("orders")):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, error.remedy)
"""


def test_the_small_distribution_is_a_client_that_needs_two_packages(tmp_path: Path) -> None:
    package = ROOT / "packages" / "forebay-client"
    described = tomllib.loads((package / "pyproject.toml").read_text())
    included = described["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for origin, place in included.items():
        found, target = package / origin, tmp_path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        _ = shutil.copytree(found, target) if found.is_dir() else shutil.copy(found, target)
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    place, unreachable, without_arrow = done.stdout.splitlines()
    assert place == str(tmp_path / "forebay" / "__init__.py")
    assert unreachable.startswith("Unreachable Start one with `forebay serve`")
    assert without_arrow == "Permanent Install it: pip install 'forebay-client[arrow]'"


def test_the_small_distribution_asks_for_no_other_versions_than_the_whole() -> None:
    def needed(path: Path) -> set[str]:
        return set(tomllib.loads(path.read_text())["project"]["dependencies"])

    small = needed(ROOT / "packages" / "forebay-client" / "pyproject.toml")
    assert {name.partition(">")[0] for name in small} == {"msgspec", "httptools"}
    assert small <= needed(ROOT / "pyproject.toml")


def test_a_server_starts_without_loading_pandas() -> None:
    """pyarrow loads it when it makes something of a Python value: half a second of every start."""
    program = "import sys, forebay.assemble; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
