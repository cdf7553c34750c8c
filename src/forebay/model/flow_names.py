"""How flows and their actions may be named, in flow files and for dispatch alike."""

from __future__ import annotations

import re

FLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A flow has a directory of its name."""
ACTION_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/$-]{0,254}")
"""Also of action classes: patterns of workers use `*`, `?` and `[`, which therefore stand in no name."""
