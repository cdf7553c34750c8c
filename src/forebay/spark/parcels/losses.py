"""What parcels lack that a job has read without some of their messages, as `failOnDataLoss: false` lets it.

The servers say it after the reading: what a task met as lost, the server has noted before it answered the task, and
a queue that was deleted never comes again (`forebay.model.missing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from forebay.model.missing import QueueState, gaps_in
from forebay.spark.parcels.lease import Missing, Parcel
from forebay.spark.server_calls import ServerCalls, ServerRefused

if TYPE_CHECKING:
    from forebay.flows.definition import Source
    from forebay.spark.options import Connection


def missing_of(parcels: Sequence[Parcel], connection: Connection, source: Source) -> Mapping[str, Sequence[Missing]]:
    """What each parcel lacks, by did. Nothing where a loss ends the job. Raises ForebayError if no server says it."""
    if source.fail_on_data_loss:
        return {}
    names = sorted({one.queue for parcel in parcels for one in parcel.ranges})
    partitions = [name.strip() for name in source.partition.split(",")] if source.partition else []
    calls = ServerCalls(connection)
    states = {name: _state(calls, name, partitions) for name in names}
    found = {parcel.did: _missing(parcel, states) for parcel in parcels}
    return {did: missing for did, missing in found.items() if missing}


def _state(calls: ServerCalls, queue: str, partitions: Sequence[str]) -> QueueState | None:
    words = urlencode([("partition", name) for name in partitions])
    path = f"/api/v1/arrow/queues/{quote(queue, safe='')}/range"
    try:
        found = calls.request("GET", f"{path}?{words}" if words else path)
    except ServerRefused as refused:
        if refused.code != "unknown_queue":
            raise
        return None
    lost = [(span["firstSeq"], span["lastSeq"], span["messages"]) for span in found.get("lost", ())]
    return QueueState(found.get("identity", ""), found.get("removedSeq", 0), lost)


def _missing(parcel: Parcel, states: Mapping[str, QueueState | None]) -> list[Missing]:
    return [
        Missing(one.queue, gap.first_seq, gap.last_seq, gap.messages, gap.cause)
        for one in parcel.ranges
        for gap in gaps_in(one.first_seq, one.last_seq, one.identity, one.removed_up_to, states[one.queue])
    ]
