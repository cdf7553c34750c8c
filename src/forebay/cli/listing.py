"""Groups of commands that list when they are named alone: `forebay queues` is `forebay queues list`."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup

InternalOption = Annotated[
    bool, typer.Option("--internal", help="Also queues that Forebay makes for itself: .flow.… and .export.….")
]


class ListingGroup(TyperGroup):
    """`app.spelled_for` adds the command where the words name none, or begin with an option of it."""

    command_alone = "list"


def word_of(switch: bool) -> str:
    """As a query parameter."""
    return "true" if switch else "false"
