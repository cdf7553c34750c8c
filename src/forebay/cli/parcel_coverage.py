"""Whether each message of a flow's source is in one parcel: what `forebay audit` reads from the parcels themselves.

A source is cut into parcels without gaps, so those of one version follow each other up to `nextSeq`. Three things may
be missing rightly: what retention removed before it was cut, what came before the version, and parcels that were over
for `dispatch.finished_retention`. So a gap is a fault where a message in it is still there and younger than that.
Messages in two parcels are always one. Parcels that were cut before the queue was made are of another one of its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, NamedTuple

from forebay.client import Client, Refused
from forebay.client.paths import quoted


class Span(NamedTuple):
    """Seqs, both ends included."""

    first: int
    last: int

    @property
    def words(self) -> str:
        return f"message {self.first}" if self.first == self.last else f"messages {self.first}-{self.last}"


class Coverage(NamedTuple):
    doubled: list[Span]
    missing: list[Span]


def coverage_of(cut: Sequence[Span], next_seq: int) -> Coverage:
    """What is in two of the parcels, and what is in none, from the first of them up to `next_seq`."""
    doubled: list[Span] = []
    missing: list[Span] = []
    ordered = sorted(cut)
    reached = ordered[0].first if ordered else next_seq
    for span in [*ordered, Span(next_seq, next_seq)]:
        if span.first > reached:
            missing.append(Span(reached, span.first - 1))
        elif span.first < reached and span.first != next_seq:
            doubled.append(Span(span.first, min(span.last, reached - 1)))
        reached = max(reached, span.last + 1)
    return Coverage(doubled, missing)


def coverage_faults(client: Client, flow: dict[str, Any], parcels: Sequence[dict[str, Any]]) -> list[str]:
    """In words; empty for a flow whose source is no queue."""
    source = flow["definition"]["source"]
    if source.get("kind", "queue") != "queue":
        return []
    queue = source["queue"]
    made = _made(client, queue)
    if made is None:
        return []
    cut = [
        Span(parcel["firstSeq"], parcel["lastSeq"])
        for parcel in parcels
        if parcel["version"] == flow["version"]
        and parcel["parent"] is None
        and parcel["queue"] == queue
        and datetime.fromisoformat(parcel["createdAt"]) >= made
    ]
    found = coverage_of(cut, flow["nextSeq"])
    since = datetime.now(UTC) - timedelta(seconds=flow["finishedRetentionSeconds"])
    faults = [f"{span.words} of queue {queue!r} are in more than one parcel" for span in found.doubled]
    for span in found.missing:
        seqs = list(_young_messages(client, queue, span, since))
        if seqs:
            faults.append(f"{len(seqs)} messages of queue {queue!r}, {seqs[0]} to {seqs[-1]}, are in no parcel")
    return faults


def _made(client: Client, queue: str) -> datetime | None:
    """When the queue was made; None where there is none, so that nothing of it can be in no parcel."""
    try:
        bounds = client.get(f"/api/v1/arrow/queues/{quoted(queue)}/range")
    except Refused as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    created_us = int(bounds.get("identity", "").partition("-")[2] or 0)
    # To the millisecond, as times are shown.
    return datetime.fromtimestamp(created_us // 1_000 / 1_000, UTC)


def _young_messages(client: Client, queue: str, span: Span, since: datetime) -> Iterator[int]:
    """Seqs of what is still there of them and was accepted since then."""
    seq: int | None = span.first
    while seq is not None and seq <= span.last:
        page = client.get("/api/v1/messages", {"queue": queue, "fromSeq": seq, "limit": 1000})
        for message in page["messages"]:
            if message["seq"] <= span.last and datetime.fromisoformat(message["createdAt"]) >= since:
                yield message["seq"]
        seq = page["nextSeq"]
