"""Folders that code is run or loaded from: no other user may write there, or they would decide what this one runs."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def own_folder(folder: Path) -> Path:
    """The folder, made if need be, or a fresh one where it belongs to another user or is a link."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(folder):
        if not _is_mine(folder):
            return Path(tempfile.mkdtemp(prefix="forebay-"))
        folder.chmod(0o700)
    return folder


def is_own(path: Path) -> bool:
    """Whether it is this user's, and no other user may write to it."""
    return _is_mine(path) and not path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode)


def temporary_folder() -> Path:
    """Where users without a home have theirs."""
    return Path(tempfile.gettempdir()) / f"forebay-{os.getuid()}"
