"""The wheel, built and installed as a user does it: it holds all that a server needs, and runs outside the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
UV = Path(sys.executable).with_name("uv")
NOT_CODE = {".pyc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a place of its own, with the build backend that `make setup` has fetched too."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    shutil.copytree(SOURCES, checkout / "src", ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(UV), "build", "--wheel", "--python", sys.executable, "-o", str(folder), str(checkout)]
    environ = {**os.environ, "UV_SYSTEM_CERTS": "1"}  # as scripts/setup has it
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = {
        file.relative_to(SOURCES).as_posix()
        for file in (SOURCES / "forebay").rglob("*")
        if file.is_file() and file.suffix not in NOT_CODE
    }
    assert files <= packed
    for ending in (".sql", ".lua", ".js", ".css", ".html", ".svg", "py.typed"):
        assert any(name.endswith(ending) for name in packed), f"no file ends in {ending}"


def needed_distributions() -> set[str]:
    """What the wheel asks for, with all that these ask for in turn, as far as it is installed here."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: set[str] = set()
    extras = {"connect", "binary"}
    while wanted:
        requirement = wanted.pop()
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", requirement)
        name = re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]).lower()
        if name in found or (extra is not None and extra[1] not in extras):
            continue
        try:
            wanted += requires(name) or []
        except PackageNotFoundError:
            continue  # for another system or another Python than this
        found.add(name)
    return found


# What stands for a virtual environment that has the wheel's dependencies and nothing else.
ONLY_RUNTIME = """
import json, sys
from importlib.metadata import packages_distributions
from re import sub

needed = set(json.loads(sys.argv.pop(1)))

class OnlyRuntime:
    owners = {top: {sub("[-_.]+", "-", name).lower() for name in names}
              for top, names in packages_distributions().items()}

    def find_spec(self, name, path=None, target=None):
        owners = self.owners.get(name.partition(".")[0])
        if owners and "forebay" not in owners and not owners & needed:
            raise ModuleNotFoundError(f"{name} is not a runtime dependency", name=name)

sys.meta_path.insert(0, OnlyRuntime())
try:
    import hypothesis
except ModuleNotFoundError:
    pass
else:
    sys.exit("the guard lets everything through")
from forebay.cli import main
main()
"""


def test_installed_wheel_serves_outside_the_checkout_with_its_own_dependencies_alone(
    wheel: Path, tmp_path: Path
) -> None:
    place = tmp_path / "site"
    command = [
        str(UV),
        "pip",
        "install",
        "--no-deps",
        "--offline",
        "--python",
        sys.executable,
        "--target",
        str(place),
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert (place / "bin" / "forebay").exists()
    script = tmp_path / "forebay.py"
    script.write_text(ONLY_RUNTIME)
    # -I: neither the checkout, nor the working directory, nor PYTHONPATH; the target comes before what is installed.
    start = (
        f"import sys, runpy; sys.path.insert(0, {str(place)!r}); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    )
    words = [sys.executable, "-I", "-c", start, str(script), json.dumps(sorted(needed_distributions()))]

    def forebay(*arguments: str) -> str:
        done = subprocess.run(
            [*words, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert forebay("--version").startswith("forebay ")
    server = subprocess.Popen(
        [*words, "serve", "--port", "0", "--data-dir", "data"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = re.search(r"http://\S+?:\d+", line)
        assert url is not None, line
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert sysconfig.get_paths()["purelib"] in maps  # dependencies are those installed here
        assert "receipt log" in forebay("push", "orders", '{"id": 7}', "--url", url[0])
        assert forebay("pop", "orders@billing", "--url", url[0]) == '{"id": 7}\n'
        for path, kind in (("/", "text/html"), ("/page/app.js", "text/javascript"), ("/openapi.json", "application/")):
            with urllib.request.urlopen(url[0] + path, timeout=10) as answer:
                assert (answer.status, kind in answer.headers["content-type"]) == (200, True)
                assert answer.read()
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0
