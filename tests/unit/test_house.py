"""The laws of the checkout itself: what a newcomer reads and runs first must hold."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
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


def recipes() -> dict[str, str]:
    """The sections of "How to add", by their headings."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## How to add\n")[2].partition("\n## ")[0]
    _, *found = section.split("\n### ")
    return {text.partition("\n")[0]: text for text in found}


def test_recipes_name_files_that_are_there_and_words_that_are_in_them() -> None:
    assert list(recipes()) == ["A queue option", "A store", "An endpoint", "A command", "A destination"]
    for name, text in recipes().items():
        quoted = re.findall(r"`([^`]+)`", text)
        paths = [ROOT / word for word in quoted if re.match(r"(src|tests|docs)/", word) and "NAME" not in word]
        assert paths, name
        assert [str(path) for path in paths if not path.exists()] == []
        sources = [
            file.read_text() for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        ]
        for word in quoted:
            if re.fullmatch(r"[A-Za-z_.]*[A-Z_][A-Za-z_]*", word):
                last = word.rpartition(".")[2]
                assert any(re.search(rf"\b{last}\b", source) for source in sources), f"{name}: {word}"


ALIKE_BY_CHANCE = {
    "CRC": "of two file formats, each of which is described as a whole where it is read and written",
    "CRC_BYTES": "of two file formats",
    "CRC_FOLLOWS": "of two file formats",
    "HEADER_BYTES": "of two file formats, with headers of their own",
    "VERSION": "of two file formats, which are changed apart",
    "FLOWS_MAX": "of a report of a worker, and of what a worker keeps",
    "JOINED_BYTES_MAX": "of what a server sends, and of what a client sends",
    "KEPT_SECONDS": "two caches, whose contents cost differently",
    "KNOWN_MAX": "two caches",
    "LOOK_SECONDS": "each loop's own pace",
    "OTHER": "a label's value: the rest of the queues, and the rest of the action classes",
    "PAGE": "of two lists",
    "PAUSE_SECONDS_MAX": "each loop's own pace",
    "POLL_SECONDS": "each loop's own pace",
    "PREFIX": "of keys, and of metrics",
    "RETRY_SECONDS": "each loop's own pace",
    "SHARE": "of two different budgets",
    "STOP_SECONDS_MAX": "each thing that stops has its own limit",
    "PROBE_SECONDS_MAX": "of two servers for tests",
    "CODE": "an enumeration of gRPC, under a shorter name",
    "FLOWS": "server and client meet over HTTP, and each writes the path that it means",
    "PARCELS": "a path, as FLOWS",
    "POLICIES": "a path, as FLOWS",
}


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Names in capitals of a module, and what stands behind them; a leading underscore makes no other name."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name):
            yield name.lstrip("_"), ast.unparse(value)


def test_a_constant_stands_in_one_module() -> None:
    """Benchmarks are left out: the plan of one has nothing to do with the plan of another."""
    source = ROOT / "src" / "forebay"
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if not name.startswith("bench/"):
            for constant in constants(path):
                homes[constant].append(name)
    several = {constant: modules for constant, modules in homes.items() if len(modules) > 1}
    found = {f"{name} = {value}": modules for (name, value), modules in several.items() if name not in ALIKE_BY_CHANCE}
    assert found == {}
    assert ALIKE_BY_CHANCE.keys() <= {name for name, _ in several}, "an exception that nothing needs"


ACTORS = re.compile(
    r"(?<![A-Za-z])(who|whoever|somebody|nobody|everybody|anybody|told|asked)(?![A-Za-z])", re.IGNORECASE
)
"""Words that leave open which thread, client or function is meant. Comments, names and texts say it: "the client", "the
store's thread", "another process"; and "returned", "logged", "requested" for what has become of something."""
ACTORS_MAX = {
    "api": 9,  # people who have or reach something; texts of HTTP
    "broker": 6,
    "cli": 3,
    "dispatch": 1,
    "export": 1,
    "flows": 1,  # a name in a file
    "ingest": 2,
    "spark": 1,
    "testing": 7,  # the user `nobody`
}


def test_comments_and_names_say_who_acts() -> None:
    """Numbered migrations are left out: they never change. A room that needs fewer of these words lowers its number."""
    source = ROOT / "src" / "forebay"
    found: Counter[str] = Counter()
    for path in sorted(source.rglob("*")):
        if path.suffix in {".py", ".sql", ".js", ".html", ".css", ".lua"} and not re.match(r"\d{4}_", path.name):
            room, *below = path.relative_to(source).parts
            found[room if below else "forebay"] += len(ACTORS.findall(path.read_text()))
    assert {room: number for room, number in found.items() if number > ACTORS_MAX.get(room, 0)} == {}


def test_a_public_signature_names_its_options() -> None:
    """`**options: Any` would say nothing to a reader, and take every misspelt name."""
    source = ROOT / "src" / "forebay"
    open_ended = []
    for path in sorted(source.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        methods = [node for found in body if isinstance(found, ast.ClassDef) for node in found.body]
        for node in [*body, *methods]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.kwarg and node.name[0] != "_":
                annotation = node.args.kwarg.annotation
                if annotation is None or ast.unparse(annotation) == "Any":
                    open_ended.append(f"{path.relative_to(source)}: {node.name}")
    assert open_ended == []


SQL_KEPT_IN_CODE = {"embedded/database.py", "postgres/migrations.py"}
"""What makes and migrates the schema itself."""


def test_statements_of_the_stores_stand_in_named_files() -> None:
    stores = ROOT / "src/forebay/broker/stores"
    statement = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s(?!1$)")
    found = [
        f"{path.relative_to(stores)}:{node.lineno}"
        for path in sorted(stores.rglob("*.py"))
        if str(path.relative_to(stores)) not in SQL_KEPT_IN_CODE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if statement.match(node.value if isinstance(node.value, str) else node.value.decode(errors="replace"))
    ]
    assert found == []


def test_every_statement_says_what_it_is_for_and_is_used() -> None:
    sql = ROOT / "src/forebay/broker/sql"
    code = "".join(path.read_text() for path in (ROOT / "src/forebay/broker").rglob("*.py"))
    files = [path for path in sorted(sql.rglob("*.sql")) if not re.match(r"\d{4}_", path.name)]
    assert len(files) > 200
    used = {
        *re.findall(r'"(\w+)"', code),
        *(name for path in files for name in re.findall(r"{(\w+)}", path.read_text())),
    }
    for path in files:
        assert path.read_text().startswith("-- "), path
        assert path.stem in used, f"{path} has no reader"
