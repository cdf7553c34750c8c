"""Small scripts that stand before Java and Python, written once into the user's cache.

They are run, so they are taken only from where no other user can write: see `own_folder`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import pyspark

from forebay.spark.own_folder import is_own, own_folder, temporary_folder

_PYTHON = """#!/bin/sh
# Spark puts its Python code before everything else as zips, which each process would have to compile anew, and a jar.
# This Python has the same code installed, and compiled.
# Where nothing compiled may be written beside the code, as in many containers, it is kept with this script.
if [ -n "$PYTHONDONTWRITEBYTECODE" ]; then
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX="${{PYTHONPYCACHEPREFIX:-{compiled}}}"
fi
set -f
kept=
IFS=:
for place in $PYTHONPATH; do
  case "$place" in
    "{spark}"/python/lib/*.zip | "{spark}"/jars/*.jar) ;;
    *) kept="${{kept:+$kept:}}$place" ;;
  esac
done
PYTHONPATH="$kept" exec "{python}" "$@"
"""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_CACHE_HOME") or (Path(environ["HOME"]) / ".cache" if environ.get("HOME") else None)
    return Path(home) / "forebay" if home else temporary_folder()


def written_script(text: str, folder: Path, kind: str, name: str) -> Path:
    """The script's path, `<folder>/<kind>-<what is in it>/<name>`."""
    mark = blake2b(text.encode(), digest_size=6).hexdigest()
    home = own_folder(own_folder(folder) / f"{kind}-{mark}")
    if own_folder((home / name).parent) != (home / name).parent:
        home = Path(tempfile.mkdtemp(prefix="forebay-"))
        own_folder((home / name).parent)
    script = home / name
    if not (is_own(script) and os.access(script, os.X_OK) and script.read_text() == text):
        # Several processes may do this at once: each writes a file of its own, and the last one stays.
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)
    return script


def local_python(environ: Mapping[str, str] = os.environ) -> str:
    """This Python as the processes of a local Spark are to be started with: most of their start is saved.

    They import PySpark, a second's work if it has to be compiled, and a stream starts such a process for its source.
    """
    folder = cache_folder(environ)
    text = _PYTHON.format(spark=Path(pyspark.__file__).parent, python=sys.executable, compiled=folder / "compiled")
    try:
        return str(written_script(text, folder, "python", "python"))
    except OSError:
        # Without a place for the script it is only slower.
        return sys.executable
