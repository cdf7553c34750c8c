"""Passwords are for the database, not for logs and screens: what stands in their place wherever a setting is shown."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"

_IN_URL = re.compile(r"(\w://[^\s/?#:@]*:)[^\s]*(@)")
_SECRET = r"(?:password|passwd|passphrase|pwd|secret|token|api[-_.]?key|(?:secret|access|account)[-_.]?key[\w.-]*)"
_AS_PARAMETER = re.compile(rf"({_SECRET}\s*=\s*)('[^']*'|[^\s&;'\"]+)", re.IGNORECASE)
_AS_NAME = re.compile(rf"{_SECRET}$|^salt$|authorization|credential", re.IGNORECASE)

_AS_HEADER = re.compile(r"(\b(?:bearer\s+|x-api-key\s*:\s*))[^\s'\",;]+", re.IGNORECASE)
_OWN_KEY = re.compile(r"\b(forebay_)[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
"""As `forebay keys create` shows it once."""


def masked(text: str) -> str:
    """The text without the passwords of URLs (`//user:…@`, `?password=…`), of libpq and of Spark's properties, without
    tokens of headers, and without keys."""
    shown = _AS_PARAMETER.sub(rf"\1{MASK}", _IN_URL.sub(rf"\1{MASK}\2", text))
    return _OWN_KEY.sub(rf"\1{MASK}", _AS_HEADER.sub(rf"\1{MASK}", shown))


def without_secrets(value: Any) -> Any:
    """What YAML or JSON holds, without what stands under names such as `password`, and with masked texts."""
    if isinstance(value, dict):
        return {
            name: MASK if _AS_NAME.search(str(name)) and below else without_secrets(below)
            for name, below in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(below) for below in value]
    return masked(value) if isinstance(value, str) else value
