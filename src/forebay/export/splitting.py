"""Halves of a batch, for a destination that finds it too large: down to one data point, span, record or message."""

from __future__ import annotations

from typing import Any

from forebay.export.batch import ExportBatch, MessageBatch
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import count_items, levels_of, parsed, points_of


def halves(batch: ExportBatch) -> list[ExportBatch]:
    """Two batches with the items of one, in order; none if there is nothing to split, or no way to."""
    if isinstance(batch, MessageBatch):
        return _message_halves(batch)
    try:
        request = parsed(batch.kind, batch.body)
    except ValueError:
        return []
    parts = _request_halves(batch.kind, request)
    return [
        batch.part(part.SerializeToString(), count_items(batch.kind, part), number)
        for number, part in enumerate(parts, 1)
    ]


def _message_halves(batch: MessageBatch) -> list[ExportBatch]:
    middle = len(batch.messages) // 2
    if not middle:
        return []
    pieces = (batch.messages[:middle], batch.messages[middle:])
    return [
        MessageBatch(piece, batch.accepted_us, f"{batch.key}.{number}", batch.kind)
        for number, piece in enumerate(pieces, 1)
    ]


def _request_halves(kind: Kind, request: Any) -> list[Any]:
    """Copies of a request, each with half of the first list on the way down that has more than one element."""
    place, path = request, []
    for level in levels_of(kind):
        found = getattr(place, level)
        if len(found) != 1:
            break
        path.append(level)
        place = found[0]
    else:
        if kind is not Kind.METRICS:
            return []
    items = _list_at(kind, request, path)
    middle = len(items) // 2
    if not middle:
        return []
    first, second = _copy(request), _copy(request)
    del _list_at(kind, first, path)[middle:]
    del _list_at(kind, second, path)[:middle]
    return [first, second]


def _list_at(kind: Kind, request: Any, path: list[str]) -> Any:
    for level in path:
        request = getattr(request, level)[0]
    levels = levels_of(kind)
    return points_of(request) if len(path) == len(levels) else getattr(request, levels[len(path)])


def _copy(request: Any) -> Any:
    copy = type(request)()
    copy.CopyFrom(request)
    return copy
