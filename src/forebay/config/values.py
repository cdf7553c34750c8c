"""The kinds of value a setting may have, beyond what Python brings: `Size`, `Duration`, `Directory`.

Each accepts what people write (`512Mi`, `30s`), holds the exact value (int bytes, timedelta, Path), and is written
back the way it is read: `model_dump(mode="json")` gives the unit string again. Bounds are ordinary pydantic bounds:
`segment_size: Size = Field(…, ge=parse_size("4Ki"))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from forebay.config.units import format_duration, format_size, parse_duration, parse_size


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a unit: how it is called, read and written. Stands in `Annotated[…]` beside the type it becomes."""

    noun: str
    read: Callable[[object], Any]
    write: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(self.write, when_used="json")
        return core_schema.no_info_before_validator_function(self.read, handler(source), serialization=written)


def _read_size(value: object) -> int:
    # bool is an int to Python, but `segment_size: true` is a slip.
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_size(str(value))
    if isinstance(value, str):
        return parse_size(value)
    raise ValueError("not a number with a unit")


def _read_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return parse_duration(format_duration(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_duration(str(value))
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError("not a number with a unit")


def _read_directory(value: object) -> object:
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("it is empty")
        if "\0" in value:
            raise ValueError("it holds a zero byte")
        if value.startswith("~"):
            raise ValueError("write the home directory out, ~ is not expanded")
    return value


SIZE = Quantity("size", _read_size, format_size)
DURATION = Quantity("duration", _read_duration, format_duration)

Size = Annotated[int, SIZE]
"""Bytes."""

Duration = Annotated[timedelta, DURATION]
"""A timedelta: exact microseconds, and never mistaken for a number in another unit."""

Directory = Annotated[Path, BeforeValidator(_read_directory)]
"""A directory, relative to the working directory of the process unless absolute."""
