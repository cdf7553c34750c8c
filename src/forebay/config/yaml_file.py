"""Reads a YAML file into entries that know their line, and never ends in a traceback.

Only the plain part of YAML is taken: mappings, lists, and scalars that are text, whole numbers, true/false or null.
What YAML 1.1 would make of `010` (octal 8), `1:30` (90), `no` (false) or `2026-01-01` (a date) stays the text that
the user wrote, and its key decides. Tags such as `!!python/…` are refused; an anchor may repeat a single value only,
so no few lines can unfold into gigabytes.

Keys may be nested (`log:` above `segment_size:`) or dotted (`log.segment_size:`). A key that is given twice is a
fault, in whichever way it is written. A section without content is one with nothing set.

| limit | value | beyond it |
|---|---|---|
| size of the file | 1 MiB | refused unread |
| nodes | 10,000 | refused at the line of the next one |
| depth | 20 | refused at its line |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from forebay.config.layers import Entry, Layer, Origin
from forebay.errors import SettingFault

FILE_BYTES_MAX = 1024 * 1024
NODES_MAX = 10_000
DEPTH_MAX = 20

CONFIG_KEY = "config"
"""Under this name a fault speaks of the file as a whole."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + name for name in ("null", "bool", "int", "float", "str", "timestamp", "merge", "value", "map", "seq")
}
# Longer numbers stay text: no key takes them, and Python refuses to convert thousands of digits.
_WHOLE_NUMBER = re.compile(r"(?=.{1,40}$)[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


class FileRefused(Exception):
    """The file as a whole, or the YAML at one place of it, cannot be taken."""

    def __init__(self, allowed: str, line: int | None = None) -> None:
        super().__init__(allowed)
        self.allowed = allowed
        self.line = line


def read_yaml(path: Path, named_by: str, sections: Collection[str]) -> tuple[list[Entry], list[SettingFault]]:
    """Read the values that a file sets, and the faults that kept others from being read.

    `named_by` says what chose the file (`flag --config`); `sections` are the keys below which further keys stand.
    """
    faults: list[SettingFault] = []
    try:
        root = compose_file(path)
        entries = [] if root is None else list(_entries(root, "", path, sections, faults))
    except FileRefused as refused:
        where = named_by if refused.line is None else f"{path} line {refused.line}"
        return [], [*faults, SettingFault(CONFIG_KEY, str(path), refused.allowed, where)]
    return _once_each(entries, faults), faults


def compose_file(path: Path) -> yaml.Node | None:
    """The nodes of a file, each with its line; None for an empty one. Raises FileRefused."""
    return _compose(_text(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileRefused(f"a YAML file that can be read ({error.strerror})") from error
    if len(content) > FILE_BYTES_MAX:
        raise FileRefused("a YAML file of at most 1 MiB (this one is larger)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileRefused(f"UTF-8 (byte 0x{content[error.start]:02x} is not)", line) from error


class _BoundedLoader(yaml.SafeLoader):
    """Composes nodes within the limits. Nothing is constructed from them by YAML's own rules."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = 0
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line: int = event.start_mark.line + 1
        self.nodes += 1
        self.depth += 1
        if self.nodes > NODES_MAX:
            raise FileRefused(f"at most {NODES_MAX} values", line)
        if self.depth > DEPTH_MAX:
            raise FileRefused(f"at most {DEPTH_MAX} levels", line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(event, yaml.AliasEvent) and not isinstance(node, yaml.ScalarNode):
            raise FileRefused("an alias to a single value (not to a list or a mapping)", line)
        if node is not None and node.tag not in _PLAIN_TAGS:
            raise FileRefused(f"plain YAML (no tag {node.tag.replace(_TAG, '!!')})", line)
        return node


def _compose(text: str) -> yaml.Node | None:
    try:
        loader = _BoundedLoader(text)
        root: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileRefused(f"YAML ({error.problem})", mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FileRefused(f"YAML ({error.reason}: {chr(error.character)!r})", line) from error
    return root


def _entries(
    node: yaml.Node, prefix: str, path: Path, sections: Collection[str], faults: list[SettingFault]
) -> Iterator[Entry]:
    """Flatten a mapping into entries with dotted keys, one level per section."""
    if isinstance(node, yaml.ScalarNode) and plain(node) is None:
        return
    if not isinstance(node, yaml.MappingNode):
        raise FileRefused("a mapping of keys to values", node.start_mark.line + 1)
    for name, below in node.value:
        origin = Origin(Layer.FILE, f"{path} line {name.start_mark.line + 1}")
        if not isinstance(name, yaml.ScalarNode):
            faults.append(SettingFault(CONFIG_KEY, plain(name), "a key is a word", origin.text))
        elif name.tag == _TAG + "merge":
            faults.append(SettingFault("<<", "<<", "keys of their own; sections are not merged", origin.text))
        elif (key := prefix + name.value) in sections and _opens_section(below):
            yield from _entries(below, key + ".", path, sections, faults)
        else:
            yield Entry(key, plain(below), origin)


def _opens_section(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) or (isinstance(node, yaml.ScalarNode) and plain(node) is None)


def plain(node: yaml.Node) -> object:
    """What a node says: text, whole numbers, true, false and None, in lists and mappings."""
    if isinstance(node, yaml.MappingNode):
        return {str(plain(name)): plain(below) for name, below in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in node.value]
    text: str = node.value
    if node.tag == _TAG + "str":
        return text
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else text


def _once_each(entries: list[Entry], faults: list[SettingFault]) -> list[Entry]:
    first: dict[str, Entry] = {}
    for entry in entries:
        earlier = first.setdefault(entry.key, entry)
        if earlier is not entry:
            allowed = f"each key once (it stands at {earlier.origin} already)"
            faults.append(SettingFault(entry.key, entry.value, allowed, entry.origin.text))
    return list(first.values())
