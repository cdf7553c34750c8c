"""Small scripts that stand before Java and Python, written once into the user's cache."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import pyspark

_PYTHON = """#!/bin/sh
# Spark puts its Python code before everything else as a zip, which each process would have to compile anew.
# This Python has the same code installed, and compiled.
set -f
kept=
IFS=:
for place in $PYTHONPATH; do
  [ "$place" = "{zip}" ] || kept="${{kept:+$kept:}}$place"
done
PYTHONPATH="$kept" exec "{python}" "$@"
"""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_CACHE_HOME") or (Path(environ["HOME"]) / ".cache" if environ.get("HOME") else None)
    return Path(home or tempfile.gettempdir()) / "forebay"


def written_script(text: str, folder: Path, kind: str, name: str) -> Path:
    """The script's path, `<folder>/<kind>-<what is in it>/<name>`."""
    script = folder / f"{kind}-{blake2b(text.encode(), digest_size=6).hexdigest()}" / name
    if not os.access(script, os.X_OK):
        script.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may do this at once: each writes a file of its own, and the last one stays.
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)
    return script


def local_python(environ: Mapping[str, str] = os.environ) -> str:
    """This Python as the processes of a local Spark are to be started with: a third of their start is saved."""
    zipped = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    text = _PYTHON.format(zip=zipped, python=sys.executable)
    try:
        return str(written_script(text, cache_folder(environ), "python", "python"))
    except OSError:
        # Without a place for the script it is only slower.
        return sys.executable
