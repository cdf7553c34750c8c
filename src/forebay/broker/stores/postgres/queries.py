"""SQL is source: every query has a file of its own in `forebay/broker/sql`, whose first line says what it is for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_FOLDER = files("forebay.broker").joinpath("sql")


@cache
def query(name: str) -> bytes:
    """The text of one query. As bytes, because that is what psycopg takes from somebody who promises it is constant."""
    return _FOLDER.joinpath(f"{name}.sql").read_bytes()
