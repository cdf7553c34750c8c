"""SQL is source: every query has a file of its own in `broker/sql/postgres`, whose first line says what it is for."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

_FOLDER = files("forebay.broker").joinpath("sql/postgres")
_PARAMETER = re.compile(rb"%\((\w+)\)b")


class Statement(NamedTuple):
    """A query and its values."""

    text: bytes
    values: dict[str, object]


@cache
def query(name: str) -> bytes:
    """The text of one query. As bytes, because psycopg takes those from callers that promise it is constant."""
    return _FOLDER.joinpath(f"{name}.sql").read_bytes()


class Prepared(NamedTuple):
    """A query as PostgreSQL keeps it: under a name, with `$1` for `%(name)b`, and the names in their numbers' order."""

    name: bytes
    text: bytes
    parameters: tuple[str, ...]


@cache
def prepared(text: bytes) -> Prepared:
    names = tuple(dict.fromkeys(match.decode() for match in _PARAMETER.findall(text)))
    sql = _PARAMETER.sub(lambda match: b"$%d" % (names.index(match[1].decode()) + 1), text)
    return Prepared(b"forebay_" + sha256(text).hexdigest()[:16].encode(), sql, names)
