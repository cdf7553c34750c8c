"""Reading buffer files: frame by frame, in bounded memory, past whatever is damaged.

After bytes that are no frame the scan looks for the next place where a length is followed by that many bytes of a
whole event. No payload can fake one: the highest byte of a length is below 4, and no JSON text holds such a byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forebay.filesystem import SEARCH_BYTES, File
from forebay.ingest.event import FRAME_BYTES_MAX, LENGTH_BYTES, Event, NotAnEvent, read_event

CHUNK_BYTES = 4 << 20
CHUNK_EVENTS = 5000


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that hold no event."""

    position: int
    size: int
    reason: str
    is_torn_tail: bool = False


@dataclass(slots=True)
class Chunk:
    """Some events of a file, in order, with where their frames are; and what was passed over among them."""

    start: int
    end: int
    events: list[Event] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def chunks(
    file: File, start: int, end: int, *, bytes_max: int = CHUNK_BYTES, events_max: int = CHUNK_EVENTS
) -> Iterator[Chunk]:
    """All events between two positions. A chunk holds more than `bytes_max` only if one event does."""
    position = start
    while position < end:
        chunk = _chunk(file, position, end, bytes_max, events_max)
        position = chunk.end
        yield chunk


def _chunk(file: File, start: int, end: int, bytes_max: int, events_max: int) -> Chunk:
    data = file.read_at(min(bytes_max, end - start), start)
    chunk = Chunk(start, start)
    offset = 0
    while len(chunk.events) < events_max:
        body_at = offset + LENGTH_BYTES
        length = int.from_bytes(data[offset:body_at], "little")
        if body_at > len(data) or (length <= FRAME_BYTES_MAX and body_at + length > len(data)):
            if start + len(data) < end and chunk.end > start:
                break  # the next chunk begins with this frame
            data = _more(file, start, end, data, body_at + length)
        if body_at + length <= len(data) and 0 < length <= FRAME_BYTES_MAX:
            try:
                chunk.events.append(read_event(data[body_at : body_at + length]))
            except NotAnEvent as error:
                _pass_over(file, chunk, start + offset, end, str(error))
                break
            chunk.end = start + body_at + length
            chunk.spans.append((start + offset, chunk.end))
            offset = body_at + length
            if chunk.end == end:
                break
            continue
        if start + offset < end:
            _pass_over(file, chunk, start + offset, end, "no whole frame")
        break
    return chunk


def _more(file: File, start: int, end: int, data: bytes, wanted: int) -> bytes:
    """The same bytes and those that follow, as far as the one frame at their beginning needs them."""
    size = min(max(wanted, LENGTH_BYTES), end - start)
    return data if size <= len(data) else file.read_at(size, start)


def _pass_over(file: File, chunk: Chunk, position: int, end: int, reason: str) -> None:
    found = _next_frame(file, position + 1, end)
    next_at = end if found is None else found
    chunk.damages.append(Damage(position, next_at - position, reason, is_torn_tail=found is None))
    chunk.end = next_at


def _next_frame(file: File, start: int, end: int) -> int | None:
    """Where the next whole event's frame begins."""
    position = start
    while position < end:
        data = file.read_at(min(SEARCH_BYTES, end - position), position)
        at = data.find(b'{"')
        while at >= 0:
            frame_at = position + at - LENGTH_BYTES
            if frame_at >= start and _is_frame(file, frame_at, end):
                return frame_at
            at = data.find(b'{"', at + 1)
        # The mark, or the length before it, may stand across the border.
        if position + len(data) >= end:
            return None
        position += len(data) - 1
    return None


def _is_frame(file: File, position: int, end: int) -> bool:
    length = int.from_bytes(file.read_at(LENGTH_BYTES, position), "little")
    if not 0 < length <= FRAME_BYTES_MAX or position + LENGTH_BYTES + length > end:
        return False
    try:
        read_event(file.read_at(length, position + LENGTH_BYTES))
    except NotAnEvent:
        return False
    return True
