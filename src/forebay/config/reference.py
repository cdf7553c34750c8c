"""Writes the page `docs/reference/settings.md` from the model.

    python -m forebay.config.reference > docs/reference/settings.md

A test compares the file with this text, so the reference cannot drift from the code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from forebay.config.keys import KEYS, Key
from forebay.config.layers import CONFIG_VARIABLE
from forebay.config.model import Settings
from forebay.config.profiles import PROFILES

OPENING = f"""# Settings

<!-- Generated from the model by `python -m forebay.config.reference`. Change the model, not this file. -->

Every setting has one name: a dotted key in YAML, and derived from it an environment variable and a flag. A stronger
layer overrides a weaker one: defaults < profile < YAML file < environment < flags. The YAML file is the one given with
`-c/--config`, else the one that `{CONFIG_VARIABLE}` names. The guide is [Configuration](../guides/configuration.md).
"""


def reference() -> str:
    """The whole page as Markdown."""
    sections: dict[str, list[Key]] = {}
    for key in KEYS.values():
        sections.setdefault(key.name.rpartition(".")[0], []).append(key)
    parts = [OPENING]
    for section, keys in sections.items():
        heading = f"## `{section}`" if section else "## General"
        parts.append("\n".join([heading, "", _about(section), "", *_settings_table(keys), ""]))
    parts.append("\n".join(["## Profiles", "", *_profiles_table(), ""]))
    return "\n".join(parts)


def _about(section: str) -> str:
    model: Any = Settings
    for name in filter(None, section.split(".")):
        model = model.model_fields[name].annotation
    return inspect.cleandoc(model.__doc__ or "")


def _settings_table(keys: Sequence[Key]) -> Iterator[str]:
    yield from _table(
        ("key", "type", "default", "allowed", "environment", "flag", "meaning"),
        (
            (
                f"`{key.name}`",
                key.type_name,
                f"`{key.default}`",
                key.bounds or key.allowed,
                f"`{key.environment}`",
                f"`{key.flag}`, `{key.off_flag}`" if key.is_switch else f"`{key.flag}`",
                key.description,
            )
            for key in keys
        ),
    )


def _profiles_table() -> Iterator[str]:
    touched = [key for key in KEYS.values() if any(key.name in profile for profile in PROFILES.values())]
    yield from _table(
        ("key", *(f"`{name}`" for name in PROFILES)),
        (
            (f"`{key.name}`", *(f"`{profile.get(key.name, key.default)}`" for profile in PROFILES.values()))
            for key in touched
        ),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
