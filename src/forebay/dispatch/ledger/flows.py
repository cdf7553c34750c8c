"""Flows as they are kept: definitions by version, the state that a person wants, and how far the source is cut.

A definition that is defined again unchanged keeps its version, so that a client may define at every start. One that
changed gets the next version, and only parcels that are cut from then on have it. Versions of a name are never used
twice, also when the flow was forgotten in between: parcels of earlier versions may still be looked at.

`start: latest` is settled when the flow is defined, not when it is first cut: messages that are pushed between the two
are the flow's. A queue that is made later than the flow belongs to it from its first message on, or from
`startSeq`. A queue that is made again belongs to it from its first message on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from forebay.broker.room_work import Ask, Edge, Gaps, Now, QueueEdge, QueueGaps, Work
from forebay.dispatch.checking import check_flow
from forebay.dispatch.definition import FlowDefinition, FlowState, Source
from forebay.dispatch.faults import FlowUnfinished, UnknownFlow
from forebay.dispatch.ledger.flow_work import forget_work
from forebay.dispatch.ledger.holding import hold
from forebay.dispatch.tables import SQL
from forebay.dispatch.views import FlowStatus

_encoder = msgspec.json.Encoder(order="deterministic")  # a spec whose keys come in another order is the same
_decoder = msgspec.json.Decoder(FlowDefinition)


@lru_cache(maxsize=1024)
def decoded(text: str) -> FlowDefinition:
    """A definition from its JSON. Kept by its text, which cannot be rolled back, rather than by flow and version."""
    return _decoder.decode(text)


def definitions(keys: Sequence[tuple[str, int]]) -> Work[dict[tuple[str, int], FlowDefinition]]:
    """The definitions of these flows and versions; what is not there is left out."""
    if not keys:
        return {}
    rows = yield Ask(SQL["definitions"], {"keys": [list(key) for key in dict.fromkeys(keys)]})
    return {(flow, version): decoded(text) for flow, version, text in rows}


def define(definition: FlowDefinition) -> Work[FlowStatus]:
    """Make the flow, or change it if the definition differs. `FlowRefused` with all faults if it cannot be run."""
    check_flow(definition)
    text = _encoder.encode(definition).decode()
    now_us = yield Now()
    known = yield Ask(SQL["flow_lock"], {"flow": definition.name})
    if not known:
        # Another server may define it at this moment: the row that is there first is locked, and then changed.
        made = yield Ask(SQL["flow_make"], {"flow": definition.name, "now_us": now_us})
        if not made:
            known = yield Ask(SQL["flow_lock"], {"flow": definition.name})
    was = decoded(known[0][1]) if known and known[0][1] is not None else None
    if was is None or known[0][1] != text:
        yield Ask(SQL["definition_add"], {"flow": definition.name, "definition": text, "now_us": now_us})
        yield Ask(SQL["flow_change"], {"flow": definition.name, "now_us": now_us})
        if was is None or _reads_from(was) != _reads_from(definition):
            yield from _begin_source(definition)
    return (yield from status(definition.name))


def _reads_from(definition: FlowDefinition) -> tuple[str, str, str]:
    return definition.source.kind, definition.source.queue, definition.source.cron


def _begin_source(definition: FlowDefinition) -> Work[None]:
    """Where the source is cut from first. What was cut from another queue before stays as it is."""
    source = definition.source
    queue_id, next_seq, removed_seq = 0, 1, 0
    if source.kind == "queue":
        edge: Edge | None = yield QueueEdge(source.queue)
        if edge is not None:
            queue_id = edge.queue_id
            next_seq = start_of(source, edge)
            if source.start_seq is None:
                gaps: Gaps | None = yield QueueGaps(source.queue, 1, 0)
                removed_seq = gaps.removed_seq if gaps is not None else 0
            yield from hold([(queue_id, definition.name, next_seq)])
    begin = {"queue_id": queue_id, "next_seq": next_seq, "removed_seq": removed_seq}
    yield Ask(SQL["flow_begin_source"], {"flow": definition.name, **begin})


def start_of(source: Source, edge: Edge) -> int:
    """The first message of a queue that is a flow's, when the flow first sees the queue.

    A seq that is named is taken at its word: what is gone behind it was wanted.
    """
    if source.start_seq is not None:
        return source.start_seq
    return edge.next_seq if source.start == "latest" else edge.first_seq


def statuses() -> Work[list[FlowStatus]]:
    """All flows, by name."""
    rows = yield Ask(SQL["flow_statuses"], {"flow": ""})
    return [_status(row) for row in rows]


def find(flow: str) -> Work[FlowStatus | None]:
    rows = yield Ask(SQL["flow_statuses"], {"flow": flow})
    return _status(rows[0]) if rows else None


def status(flow: str) -> Work[FlowStatus]:
    found = yield from find(flow)
    if found is None:
        raise UnknownFlow(flow)
    return found


def _status(row: Sequence[object]) -> FlowStatus:
    name, version, text, *rest = row
    return FlowStatus(name, version, decoded(str(text)), *rest)  # type: ignore[arg-type]


def set_state(flow: str, state: FlowState, reason: str = "") -> Work[FlowStatus]:
    """RUNNING, PAUSED (its parcels are not leased, its source is cut) or STOPPED (its source is not cut)."""
    now_us = yield Now()
    changed = yield Ask(SQL["flow_set_state"], {"flow": flow, "state": state, "reason": reason, "now_us": now_us})
    if not changed:
        raise UnknownFlow(flow)
    return (yield from status(flow))


def forget(flow: str) -> Work[bool]:
    """Remove the flow, its holds and its buckets; False when there is none. Refused while parcels are unfinished.

    Its finished parcels stay until they are old enough, and its definitions with them.
    """
    known = yield Ask(SQL["flow_lock"], {"flow": flow})
    if not known:
        return False
    [[unfinished]] = yield Ask(SQL["flow_unfinished"], {"flow": flow})
    if unfinished:
        raise FlowUnfinished(flow, unfinished)
    yield Ask(SQL["flow_holds_drop"], {"flow": flow})
    yield Ask(SQL["flow_buckets_drop"], {"flow": flow})
    yield Ask(SQL["flow_counts_drop"], {"flow": flow})
    yield from forget_work(flow)
    yield Ask(SQL["flow_drop"], {"flow": flow})
    return True
