"""A server of this machine that is just starting is waited for: `forebay serve &`, then `forebay push`, is no race.

Nothing is waited for without a reason: only while the address is one of this machine's and refuses, and a server of
this user runs that does not listen yet and is not set to listen on another port. Where there is no /proc, a command
fails at once, as if none had been started.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from forebay.cli import output
from forebay.cli.port_owner import holds, listening_inodes

DEFAULT_PORT = 6632
WAIT_SECONDS_MAX = 60.0
_SILENT_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_LOOPBACK = ("localhost", "::1")


def wait_while_starting(url: str) -> None:
    """Return when the server of the URL takes connections, or when none is starting."""
    place = _place_here(url)
    if place is None:
        return
    began, is_shown = time.monotonic(), False
    while not _accepts(place):
        process = starting_server(place[1])
        waited = time.monotonic() - began
        if process is None or waited > WAIT_SECONDS_MAX:
            return
        if waited > _SILENT_SECONDS and not is_shown:
            output.tell(f"waiting for the server that is starting (process {process})")
            is_shown = True
        time.sleep(_LOOK_SECONDS)


def starting_server(port: int) -> int | None:
    """A process of this user that is to serve the port, or may be, and listens on none yet."""
    inodes = set(listening_inodes())
    for process in Path("/proc").glob("[0-9]*"):
        words = _own_words(process)
        if not words or not may_serve(words[1:], port):
            continue
        is_behind = _has_children(process) if words[0] == "up" else holds(process, inodes)
        if not is_behind:
            return int(process.name)
    return None


def may_serve(words: Sequence[str], port: int) -> bool:
    """By the command line of a server. A settings file may name any port."""
    spelled = [part for word in words for part in word.split("=", 1)]
    for flag, value in pairwise(spelled):
        if flag.lstrip("-") in ("port", "server-port"):
            return value == str(port)
    return port == DEFAULT_PORT or any(word in ("-c", "--config") for word in spelled)


def _own_words(process: Path) -> list[str]:
    """Its command line behind `forebay`, if it is this user's and runs a server; else nothing."""
    try:
        if process.stat().st_uid != os.getuid():
            return []
        words = [word.decode(errors="replace") for word in (process / "cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []
    place = next((place for place, word in enumerate(words) if word.rpartition("/")[2] == "forebay"), len(words))
    found = words[place + 1 :]
    return found if found and found[0] in ("serve", "up") else []


def _has_children(process: Path) -> bool:
    try:
        return any(task.read_text().strip() for task in process.glob("task/*/children"))
    except OSError:
        return True


def _place_here(url: str) -> tuple[str, int] | None:
    """Host and port, if they are this machine's own."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None  # the client says what is wrong with it
    return (host, port) if host in _LOOPBACK or host.startswith("127.") else None


def _accepts(place: tuple[str, int]) -> bool:
    """Whether a process listens there; anything but a refusal is for the client to find out."""
    try:
        socket.create_connection(place, timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
