"""New parcels, wherever they come from: their rows, their places in line, and their first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.ledger.enqueue import Enqueued, enqueue
from forebay.dispatch.ledger.joining import Entering, enter, key_of
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import NewStep, Range

TRANSFORM = "TRANSFORM"
DATA_SINK = "DATA_SINK"


class NewParcel(NamedTuple):
    did: str
    ranges: Sequence[Range]
    """Empty: a timer's, which has no messages."""
    messages: int
    message_bytes: int = 0
    """Of one message on the average; 0: not known."""
    parent: str = ""
    annotations: Mapping[str, str] = {}


def flow_type(definition: FlowDefinition, step: int) -> str:
    """DATA_SINK for a flow's last step."""
    return DATA_SINK if step == len(definition.steps) - 1 else TRANSFORM


def new_step(definition: FlowDefinition, step: int, parcel: NewParcel, place: int) -> NewStep:
    wanted = definition.steps[step]
    return NewStep(
        parcel.did,
        step,
        definition.name,
        flow_type(definition, step),
        wanted.action,
        wanted.action_class,
        place,
        parcel.ranges,
        parcel.messages,
        parcel.messages * parcel.message_bytes,
    )


def take_places(count: int) -> Work[int]:
    """The first of so many places in line that follow each other.

    The number stays locked until the transaction ends, so that places increase in the order of commits.
    """
    [[last]] = yield Ask(SQL["place_take"], {"count": count})
    return int(last) - count + 1


def start_parcels(
    definition: FlowDefinition, version: int, parcels: Sequence[NewParcel], capacity: int, *, step: int = 0
) -> Work[Enqueued]:
    """Write the parcels, in the order of their places, and queue their step, or let them wait for its join."""
    now_us = yield Now()
    first = yield from take_places(len(parcels))
    places = range(first, first + len(parcels))
    rows = [_row(definition.name, version, parcel, place) for parcel, place in zip(parcels, places, strict=True)]
    yield Ask(SQL["parcels_add"], {"parcels": rows, "now_us": now_us})
    steps = [new_step(definition, step, parcel, place) for parcel, place in zip(parcels, places, strict=True)]
    join = definition.steps[step].join
    if join is None:
        return (yield from enqueue(steps, capacity))
    entering = [
        Entering(new, join, key_of(join, parcel.annotations)) for new, parcel in zip(steps, parcels, strict=True)
    ]
    return (yield from enter(entering, capacity))


def _row(flow: str, version: int, parcel: NewParcel, place: int) -> list[object]:
    reading = parcel.ranges[0] if parcel.ranges else Range("", 1, 0)
    size = parcel.messages * parcel.message_bytes
    annotations = msgspec.json.encode(dict(parcel.annotations)).decode()
    return [parcel.did, flow, version, parcel.parent, *reading[:3], parcel.messages, size, place, annotations]
