"""The table of keys, derived from the model: everything else (layers, faults, flags, reference) works from it.

A key is known by its dotted name. Its environment name and its flag follow from that name: `log.segment_size` is
`FOREBAY_LOG_SEGMENT_SIZE` and `--log-segment-size`. Names are looked up in this table, never taken apart, so a `_`
that separates sections and a `_` inside a word cannot be confused; a test proves that no two keys share a name.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from forebay.config.model import Settings
from forebay.config.values import Quantity

ENVIRONMENT_PREFIX = "FOREBAY_"


class ValueRefused(ValueError):
    """A value does not fit its key. The message is the hint that helps, or empty where `Key.allowed` says it all."""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its names, what it allows, and how a value for it is read and written."""

    name: str
    type_name: str
    allowed: str
    default: str
    bounds: str
    description: str
    choices: tuple[str, ...]
    is_switch: bool
    adapter: TypeAdapter[Any] = field(repr=False)

    @property
    def environment(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace(".", "-").replace("_", "-")

    @property
    def off_flag(self) -> str:
        """The flag that turns a switch off."""
        return "--no-" + self.flag.removeprefix("--")

    def read(self, value: object) -> object:
        """Turn what was written into the value the model holds, or raise ValueRefused."""
        # Pydantic would take True for the number 1; a file that says `true` does not mean that.
        if isinstance(value, bool) and not self.is_switch:
            raise ValueRefused("")
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            own = first.get("ctx", {}).get("error")
            raise ValueRefused(str(own) if isinstance(own, ValueError) else "") from error


def keys_of(model: type[BaseModel]) -> Mapping[str, Key]:
    """All keys of a settings model by dotted name, in the order in which they are declared."""
    return types.MappingProxyType({key.name: key for key in _walk(model, "")})


def sections_of(names: Iterable[str]) -> frozenset[str]:
    """The prefixes under which keys stand: `log` for `log.segment_size`."""
    parts = [name.split(".") for name in names]
    return frozenset(".".join(part[:depth]) for part in parts for depth in range(1, len(part)))


def resembling(name: str, known: Iterable[str]) -> list[str]:
    """The known names that `name` may have been meant to be, the most likely first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.7)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _walk(info.annotation, f"{prefix}{name}.")
        else:
            yield _key(prefix + name, info)


def _key(name: str, info: FieldInfo) -> Key:
    annotation: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    lowest, highest = (_bound(info, side, adapter) for side in ("ge", "le"))
    bounds = f"{lowest} to {highest}" if lowest and highest else ""
    default = _written(info.get_default(), adapter)
    type_name, allowed = _kind(info, f" from {bounds}" if bounds else "", default)
    return Key(
        name=name,
        type_name=type_name,
        allowed=allowed,
        default=default,
        bounds=bounds,
        description=info.description or "",
        choices=_choices(info),
        is_switch=info.annotation is bool,
        adapter=adapter,
    )


def _kind(info: FieldInfo, bounds: str, default: str) -> tuple[str, str]:
    """The name of the key's type, and what it allows as the end of a sentence that begins with "allowed:"."""
    quantity = next((extra for extra in info.metadata if isinstance(extra, Quantity)), None)
    if quantity is not None:
        return quantity.noun, f"a {quantity.noun}{bounds}, such as {default}"
    if choices := _choices(info):
        return "choice", ", ".join(choices[:-1]) + " or " + choices[-1]
    if info.annotation is bool:
        return "switch", "true or false"
    if info.annotation is int:
        return "number", f"a whole number{bounds}"
    if info.annotation is float:
        return "number", f"a number{bounds}"
    if info.annotation is Path:
        return "path", "a path"
    return "text", "text"


def _choices(info: FieldInfo) -> tuple[str, ...]:
    return get_args(info.annotation) if get_origin(info.annotation) is Literal else ()


def _bound(info: FieldInfo, side: str, adapter: TypeAdapter[Any]) -> str:
    bound = next((getattr(extra, side) for extra in info.metadata if hasattr(extra, side)), None)
    return "" if bound is None else _written(bound, adapter)


def _written(value: object, adapter: TypeAdapter[Any]) -> str:
    form = adapter.dump_python(value, mode="json")
    return str(form).lower() if isinstance(form, bool) else str(form)


KEYS = keys_of(Settings)
"""The keys of this Forebay."""
