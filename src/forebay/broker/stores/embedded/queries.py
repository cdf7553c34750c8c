"""The named statements of this store: each has a file of its own in `broker/sql/embedded`.

`{name}` in a statement stands for the text of another file, `name.sql`; where there is no such file, for a part that
its caller puts in (`query_with`): a table, or conditions of which each query has its own.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

FOLDER = files("forebay.broker").joinpath("sql/embedded")
_PART = re.compile(r"\{(\w+)\}")


@cache
def query(name: str) -> str:
    """The text of one statement."""
    return _PART.sub(_other, FOLDER.joinpath(f"{name}.sql").read_text())


@cache
def query_with(name: str, **parts: str) -> str:
    """The same with parts put in."""
    return _PART.sub(lambda found: parts[found[1]], query(name))


def _other(found: re.Match[str]) -> str:
    file = FOLDER.joinpath(f"{found[1]}.sql")
    if not file.is_file():
        return found[0]
    return "\n".join(line for line in query(found[1]).splitlines() if not line.startswith("--"))
