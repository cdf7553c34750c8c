"""Passwords are for the database, not for logs and screens: what stands in their place wherever a setting is shown."""

from __future__ import annotations

import re

MASK = "***"

_IN_URL = re.compile(r"(\w://[^\s/?#:@]*:)[^\s]*(@)")
_AS_PARAMETER = re.compile(
    r"((?:password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key)\s*=\s*)('[^']*'|[^\s&;'\"]+)",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """The text without the passwords of URLs (`//user:…@`, `?password=…`) and of libpq's `password=…`."""
    return _AS_PARAMETER.sub(rf"\1{MASK}", _IN_URL.sub(rf"\1{MASK}\2", text))
