"""The command line: one file per command, `app` to find them, `output` to print.

A command is a thin room: it reads words, calls the stage that does the work, and hands the result to `output`. It
decides nothing about messages, logs or settings. `app.COMMANDS` is the table of all commands; their modules are
imported when they are called.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script `forebay`."""
    from forebay.cli.app import run
    from forebay.cli.orphans import watch_parent

    watch_parent()
    sys.exit(run(sys.argv[1:]))
