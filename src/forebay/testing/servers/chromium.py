"""A browser for tests of the web page: the system's Chromium, driven through Playwright.

Playwright's own download of a browser is not used: the system package is kept up by the distribution, and a
test machine may not reach anything else.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.testing.servers.binaries import ServerUnavailable

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LAUNCH_MILLISECONDS_MAX = 60_000
# Chromium makes a socket below its temporary directory, and a socket's path may have 107 bytes.
_TEMPORARY_PATH_MAX = 60
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # A test's browser talks to the test and to nothing else.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> Path:
    """The browser's program, by any of its names."""
    for name in _NAMES:
        if found := shutil.which(name):
            return Path(found)
    raise ServerUnavailable(
        f"no browser on PATH: none of {', '.join(_NAMES)}", remedy="Run `scripts/system-packages chromium`"
    )


@contextmanager
def open_browser() -> Iterator[BrowserContext]:
    """A browser without a window and without a past: its profile is made for it and removed after it.

    A killed test run takes its browser along, through Playwright's driver; only the profile stays in the
    temporary directory.

    Playwright keeps an event loop running in this thread until the end of the block, so `asyncio.run` works
    only outside of it.
    """
    from playwright.sync_api import sync_playwright

    executable = find_chromium()
    temporary = tempfile.gettempdir()
    if len(temporary) > _TEMPORARY_PATH_MAX:
        temporary = "/tmp"
    # Chromium's sandbox refuses to run as root.
    flags = [*_FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(_FLAGS)
    with (
        tempfile.TemporaryDirectory(prefix="forebay-chromium-", dir=temporary, ignore_cleanup_errors=True) as profile,
        sync_playwright() as playwright,
    ):
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=executable,
            args=flags,
            env={**os.environ, "TMPDIR": temporary},
            headless=True,
            timeout=_LAUNCH_MILLISECONDS_MAX,
        )
        try:
            yield context
        finally:
            context.close()
