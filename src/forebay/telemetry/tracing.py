"""Traces in the form of OpenTelemetry: contexts as they travel, spans as they are noted, and a bounded place for them.

A trace's context comes with a push (`traceparent`, W3C Trace Context) and stands in the headers of its messages. It
lasts as long as they do, in whatever store, and goes out with what an export sends. Without a context nothing is kept
and nothing is added.

| span | kind | from … to |
|---|---|---|
| `push` | server | a push is read … its messages are as durable as the receipt says |
| `queue` | consumer | a message was accepted … it is delivered by a pop; one per trace of a batch |
| `send` | client | an export sends a batch … the destination has answered; its traces beyond the first are links |

A span is noted if its parent was sampled where the trace began; a trace that begins here is sampled by a ratio.
Spans wait for the exporter (`span_export`) in a buffer of a fixed size: what does not fit is dropped and counted, and
no request waits for it.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import msgspec

HEADER = "traceparent"
LINKS_MAX = 32
_MARK = f'"{HEADER}"'.encode()
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class Kind(IntEnum):
    """With OTLP's numbers."""

    SERVER = 2
    CLIENT = 3
    CONSUMER = 5


class Context(NamedTuple):
    """Where in which trace something is. Ids are hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool

    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def context_of(header: bytes) -> Context | None:
    """Read a `traceparent`. None for what is none: a trace that cannot be followed is no reason to refuse a push."""
    found = _FORM.fullmatch(header.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_other_form = version == b"ff" or (version == b"00" and more is not None)
    if is_other_form or trace_id == b"0" * 32 or span_id == b"0" * 16:
        return None
    return Context(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def in_headers(context: Context) -> bytes:
    """The headers of a message that is in a trace."""
    return msgspec.json.encode({HEADER: context.header()})


def of_headers(headers: Iterable[bytes]) -> list[Context]:
    """The traces that messages are in, each once, up to `LINKS_MAX`; those that cannot be read are left out."""
    found: dict[str, Context] = {}
    for text in headers:
        if _MARK not in text:
            continue
        try:
            value = msgspec.json.decode(text, type=dict[str, object]).get(HEADER)
        except msgspec.MsgspecError:
            continue
        context = context_of(value.encode()) if isinstance(value, str) else None
        if context is not None:
            found.setdefault(context.trace_id, context)
            if len(found) == LINKS_MAX:
                break
    return list(found.values())


@dataclass(slots=True)
class Span:
    name: str
    kind: Kind
    context: Context
    parent_id: str
    """Empty for the first span of a trace."""
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, str | int] = field(default_factory=dict)
    links: Sequence[Context] = ()
    error: str = ""


class Tracer:
    """Notes spans, if they are to be exported at all. For one event loop."""

    def __init__(self, *, is_on: bool = False, sample_ratio: float = 1.0, spans_max: int = 10_000) -> None:
        self.is_on = is_on
        self.waiting: deque[Span] = deque()
        """For the exporter."""
        self.dropped = 0
        self._sample_ratio = sample_ratio
        self._spans_max = spans_max

    def begin(
        self, name: str, kind: Kind, parent: Context | None, *, links: Sequence[Context] = (), start_ns: int = 0
    ) -> Span | None:
        """A span that is to be ended; None if it is not to be noted."""
        if not self.is_on:
            return None
        if parent is None:
            if random.random() >= self._sample_ratio:
                return None
        elif not parent.is_sampled:
            return None
        trace_id = parent.trace_id if parent else secrets.token_hex(16)
        context = Context(trace_id, secrets.token_hex(8), True)
        parent_id = parent.span_id if parent else ""
        return Span(name, kind, context, parent_id, start_ns or time.time_ns(), links=links)

    def end(self, span: Span | None, attributes: Mapping[str, str | int] | None = None, error: str = "") -> None:
        if span is None:
            return
        span.end_ns = max(time.time_ns(), span.start_ns)
        span.error = error
        if attributes:
            span.attributes.update(attributes)
        if len(self.waiting) >= self._spans_max:
            self.dropped += 1
        else:
            self.waiting.append(span)


NO_TRACER = Tracer()
"""Where no traces are exported. What is passed on is passed on all the same."""
