"""Query parameters and names: how each is read, what it allows, and how it is described.

A parameter that is not known is ignored; a known one with a wrong value is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from forebay.api.problems import wrong
from forebay.model.message import CREATED_US_MAX
from forebay.model.queue import NAME_CHARACTERS_MAX

Value = TypeVar("Value")

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


def checked_name(name: str, field: str) -> str:
    """Refuse what cannot be a name. `.` and `..` between slashes would be taken away by what lies on a URL's way."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise wrong(field, f"has {len(name)} characters, allowed are 1 to {NAME_CHARACTERS_MAX}")
    if "\0" in name:
        raise wrong(field, "holds a NUL character")
    if "." in name and not {".", ".."}.isdisjoint(name.replace("\\", "/").split("/")):
        raise wrong(field, f"{name!r} has '.' or '..' as a part")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise wrong(field, "holds half a surrogate pair") from error
    return name


def time_us(text: str, field: str) -> int:
    """An ISO 8601 time, UTC unless it says otherwise, in microseconds since 1970."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise wrong(field, f"{text[:100]!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return min(max((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, 0), CREATED_US_MAX)


@dataclass(frozen=True, slots=True)
class Parameter(Generic[Value]):
    name: str
    default: Value
    help: str

    def read(self, query: Mapping[str, str]) -> Value:
        text = query.get(self.name)
        return self.default if text is None else self.parsed(text)

    def parsed(self, text: str) -> Value:
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Whole(Parameter[int]):
    """A whole number within bounds."""

    lowest: int = 0
    highest: int = 1 << 53

    def parsed(self, text: str) -> int:
        # isdecimal also accepts digits of other scripts, int() as well; a URL has ASCII.
        is_number = text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20
        if not is_number or not self.lowest <= int(text) <= self.highest:
            raise wrong(self.name, f"{text[:100]!r} is not a whole number from {self.lowest} to {self.highest}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.lowest, "maximum": self.highest, "default": self.default}


@dataclass(frozen=True, slots=True)
class Switch(Parameter[bool]):
    def parsed(self, text: str) -> bool:
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise wrong(self.name, f"{text[:100]!r} is not true or false")

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "default": self.default}


@dataclass(frozen=True, slots=True)
class Name(Parameter[str | None]):
    """A queue, partition, group, … An empty one counts as not given."""

    def parsed(self, text: str) -> str | None:
        return checked_name(text, self.name) if text else self.default

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": NAME_CHARACTERS_MAX}


@dataclass(frozen=True, slots=True)
class Text(Parameter[str]):
    """One of some words, or any text up to a length."""

    words: tuple[str, ...] = ()

    def parsed(self, text: str) -> str:
        if self.words and text not in self.words:
            raise wrong(self.name, f"{text[:100]!r} is none of {', '.join(filter(None, self.words))}")
        if len(text) > NAME_CHARACTERS_MAX:
            raise wrong(self.name, f"has {len(text)} characters, allowed are {NAME_CHARACTERS_MAX}")
        if "\0" in text:
            raise wrong(self.name, "holds the character NUL")
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)} if self.words else {"type": "string", "maxLength": 255}


@dataclass(frozen=True, slots=True)
class Moment(Parameter[int | None]):
    """A time; read as microseconds since 1970."""

    def parsed(self, text: str) -> int | None:
        return time_us(text, self.name) if text else None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


LIMIT = Whole("limit", 100, "How many to answer with.", lowest=1, highest=10_000)
OFFSET = Whole("offset", 0, "How many to skip.", highest=1 << 40)
