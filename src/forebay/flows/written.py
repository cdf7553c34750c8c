"""From what a user wrote to parts of a flow: every value keeps its place, and every fault is collected.

`Written` is a tree of values that know where they stand, made from YAML or from Python values. `read` walks it beside
the type that is wanted. It does not stop at a fault, so that one look at a file tells everything that is wrong with it.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from forebay.config.units import parse_duration, parse_size
from forebay.config.yaml_file import plain
from forebay.flows.definition import Part, Size

VALUE_SHOWN_MAX = 60

Report = Callable[[str, str, str], None]
"""Called with place, path of the key, and what is wrong there."""


class Refused:
    """Stands for a value that could not be read; its fault has been reported."""


REFUSED = Refused()


@dataclass(frozen=True, slots=True)
class Written:
    """A value and its place. Mappings and lists hold `Written` again."""

    value: Any
    place: str

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {name: below.plain() for name, below in self.value.items()}
        if isinstance(self.value, list):
            return [below.plain() for below in self.value]
        return self.value

    def places(self, path: str = "") -> Iterator[tuple[str, str]]:
        """The path of every value below, and its place."""
        yield path, self.place
        items: Iterable[tuple[Any, Written]] = ()
        if isinstance(self.value, dict):
            items = self.value.items()
        elif isinstance(self.value, list):
            items = enumerate(self.value)
        for name, below in items:
            yield from below.places(joined(path, name))


def from_yaml(node: yaml.Node, file: str, report: Report, path: str = "") -> Written:
    """The tree of a YAML node. A key that stands twice is reported, and its first value counts."""
    place = f"{file} line {node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Written] = {}
        for key, below in node.value:
            name = str(plain(key))
            value = from_yaml(below, file, report, joined(path, name))
            at = f"{file} line {key.start_mark.line + 1}"
            if name in found:
                report(at, joined(path, name), f"stands twice (also at {found[name].place})")
            else:
                found[name] = Written(value.value, at)
        return Written(found, place)
    if isinstance(node, yaml.SequenceNode):
        items = [from_yaml(item, file, report, joined(path, index)) for index, item in enumerate(node.value)]
        return Written(items, place)
    return Written(plain(node), place)


def from_python(value: Any, place_of: Callable[[str], str], path: str = "") -> Written:
    """The tree of a Python value, with the places that were noted for its paths. A struct counts as a mapping."""
    if isinstance(value, msgspec.Struct):
        value = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, dict):
        below = {str(name): from_python(item, place_of, joined(path, name)) for name, item in value.items()}
        return Written(below, place_of(path))
    if isinstance(value, (list, tuple)):
        items = [from_python(item, place_of, joined(path, index)) for index, item in enumerate(value)]
        return Written(items, place_of(path))
    return Written(value, place_of(path))


def joined(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def read(written: Written, kind: Any, path: str, report: Report) -> Any:
    """The value as `kind` wants it, or REFUSED."""
    kinds = _alternatives(kind)
    if written.value is None and type(None) in kinds:
        return None
    parts = [one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    if parts:
        return _read_part(written, parts, path, report)
    origin = get_origin(kind)
    if origin is tuple and get_args(kind)[1:] == (...,):
        return _read_items(written, get_args(kind)[0], path, report)
    if origin is dict and _is_part(get_args(kind)[1]):
        return _read_mapping(written, get_args(kind)[1], path, report)
    try:
        return _leaf(written.plain(), kind, kinds)
    except ValueError as fault:
        report(written.place, path, f"{_shown(written.plain())} is refused: {_in_small(str(fault))}")
        return REFUSED


def resembling(name: str, known: Iterable[str]) -> str:
    """` (did you mean x?)`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_part(kind: Any) -> bool:
    return any(isinstance(one, type) and issubclass(one, msgspec.Struct) for one in _alternatives(kind))


def _read_part(written: Written, parts: list[type[msgspec.Struct]], path: str, report: Report) -> Any:
    if not isinstance(written.value, dict):
        report(written.place, path, f"{_shown(written.plain())} is refused: expected a mapping")
        return REFUSED
    kind = parts[0]
    if len(parts) > 1:
        named = {part.marker: part for part in parts if issubclass(part, Part)}
        found = [marker for marker in named if marker in written.value]
        if len(found) != 1:
            fault = f"holds {' and '.join(found)}" if found else f"holds none of {' and '.join(named)}"
            report(written.place, path, f"{fault}: write one of them")
            return REFUSED
        kind = named[found[0]]
    return _read_fields(written, kind, path, report)


def _read_fields(written: Written, kind: type[msgspec.Struct], path: str, report: Report) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, below in written.value.items():
        if name not in fields:
            known = ", ".join(fields) or "none"
            report(below.place, joined(path, name), f"no such key{resembling(name, fields)}; the keys are {known}")
        else:
            values[fields[name].name] = read(below, hints[fields[name].name], joined(path, name), report)
    missing = [name for name, field in fields.items() if field.required and name not in written.value]
    for name in missing:
        report(written.place, joined(path, name), "is missing")
    if missing or any(value is REFUSED for value in values.values()):
        return REFUSED
    try:
        return kind(**values)
    except (ValueError, TypeError) as fault:
        # Of a `__post_init__`, where an action's own parameters say what else must hold of them.
        report(written.place, path, str(fault))
        return REFUSED


def _read_items(written: Written, kind: Any, path: str, report: Report) -> Any:
    if not isinstance(written.value, list):
        report(written.place, path, f"{_shown(written.plain())} is refused: expected a list")
        return REFUSED
    items = [read(item, kind, joined(path, index), report) for index, item in enumerate(written.value)]
    return REFUSED if any(item is REFUSED for item in items) else tuple(items)


def _read_mapping(written: Written, kind: Any, path: str, report: Report) -> Any:
    if not isinstance(written.value, dict):
        report(written.place, path, f"{_shown(written.plain())} is refused: expected a mapping")
        return REFUSED
    items = {name: read(item, kind, joined(path, name), report) for name, item in written.value.items()}
    return REFUSED if any(item is REFUSED for item in items.values()) else items


def _leaf(value: Any, kind: Any, kinds: tuple[Any, ...]) -> Any:
    if timedelta in kinds:
        return value if isinstance(value, timedelta) else parse_duration(str(value))
    if Size in kinds:
        return parse_size(str(value))
    choices = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    if choices and value not in choices:
        raise ValueError(f"expected {' or '.join(map(str, choices))}")
    # YAML numbers with a fraction and switches come as text here: they become what the field wants.
    return msgspec.convert(value, kind, strict=False)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN_MAX else text[: VALUE_SHOWN_MAX - 1] + "…"


def _in_small(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
