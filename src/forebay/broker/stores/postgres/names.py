"""How what the database calls by number is called outside."""

from __future__ import annotations

import re

from forebay.model.queue import QueueOptions, options_from_wire

_WIRE_ID = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")


def wire_id(queue_id: int, partition_id: int) -> str:
    """A partition's id outside the store. Both numbers are never used again, also after the queue was deleted."""
    return f"{queue_id}-{partition_id}"


def place_numbers(partition_id: str) -> tuple[int, int] | None:
    """The numbers of queue and partition; None when this is no id of ours."""
    match = _WIRE_ID.fullmatch(partition_id)
    return (int(match[1]), int(match[2])) if match else None


def partition_number(partition_id: str) -> int | None:
    """The partition's number; None when this is no id of ours."""
    match = _WIRE_ID.fullmatch(partition_id)
    return int(match[2]) if match else None


def stored_options(column: object) -> QueueOptions:
    if not isinstance(column, dict):
        raise TypeError(f"options are a JSON object, not {type(column).__name__}")
    return options_from_wire(column)


def storable_text(text: str) -> str:
    """PostgreSQL's text holds no NUL and no lone surrogate; what a consumer says of its error may."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
