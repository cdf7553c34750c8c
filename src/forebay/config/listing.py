"""What `forebay config show` says of the lists of the settings file: destinations and exports, each value's line.

Of a destination's `queue` only what the file sets is listed: the rest is as `exporter.queue`. A header's value is never
listed; where it is taken from (`env:NAME`, `file:PATH`) is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from forebay.config.layers import DEFAULT, Layer, Origin
from forebay.config.lists import DESTINATIONS, EXPORTS, LISTS, DestinationSettings, ExportSettings
from forebay.config.masking import MASK, masked
from forebay.config.yaml_file import FileRefused, compose_file

Listed = tuple[str, object, Origin]
"""Dotted key (`destinations.warehouse.url`), value as it is written in YAML, and where it came from."""

_REFERENCES = ("env:", "file:")


def listed(
    file: Path | None, destinations: Sequence[DestinationSettings], exports: Sequence[ExportSettings]
) -> list[Listed]:
    """Every value of the lists of this file."""
    if file is None:
        return []
    lines = _lines(file)
    found: list[Listed] = []
    lists: tuple[tuple[str, Sequence[DestinationSettings | ExportSettings]], ...] = (
        (DESTINATIONS, destinations),
        (EXPORTS, exports),
    )
    for kind, items in lists:
        for index, item in enumerate(items):
            dumped: dict[str, Any] = item.model_dump(mode="json")
            for key, value in _flat(dumped):
                line = lines.get(f"{kind}.{index}.{_written(key)}")
                is_own_queue = kind == DESTINATIONS and key.startswith("queue.")
                if key == "name" or (line is None and (is_own_queue or value in ("", None))):
                    continue
                origin = DEFAULT if line is None else Origin(Layer.FILE, f"{file} line {line}")
                found.append((f"{kind}.{item.name}.{_written(key)}", _shown(key, value), origin))
    return found


def _written(key: str) -> str:
    """`from` is a word of Python, and the model calls it otherwise."""
    return "from" if key == "source" else key


def _shown(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    if key.startswith("headers."):
        return value if value.startswith(_REFERENCES) else MASK
    return masked(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _lines(file: Path) -> dict[str, int]:
    """The line of every value in the lists, by `destinations.0.url`."""
    try:
        root = compose_file(file)
    except FileRefused:
        return {}
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return {key: line for name, node in pairs if name.value in LISTS for key, line in _lines_of(node, name.value)}


def _lines_of(node: yaml.Node, key: str) -> Iterable[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for name, below in node.value:
            part = "mode" if name.value == "type" and key.endswith(".queue") else name.value
            yield from _lines_of(below, f"{key}.{part}")
    elif isinstance(node, yaml.SequenceNode):
        for index, below in enumerate(node.value):
            yield from _lines_of(below, f"{key}.{index}")
    else:
        yield key, node.start_mark.line + 1
