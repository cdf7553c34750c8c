"""Buffer files as tables for people and documents for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forebay.broker.encryption import Cipher
from forebay.cli import output
from forebay.config.units import format_size
from forebay.errors import Permanent
from forebay.ingest.event import Event, payload_of
from forebay.ingest.frames import Damage
from forebay.ingest.inspection import DirectoryView, FileEvents, FileView, Found

PAYLOAD_CHARACTERS = 80
QUEUES_SHOWN = 5
SEALED = "(sealed)"

Row = tuple[object, ...]


# a directory


def show_directory(view: DirectoryView) -> None:
    output.say(f"{view.directory}: {f'drained by {view.drainer}' if view.drainer else 'drained by nobody'}")
    output.say()
    numbers = ("events", "size", "oldest", "damaged")
    rows = [_file_row(one) for one in view.files]
    output.show_table(("file", "kind", "state", *numbers, "queues"), rows, right=numbers)
    waiting = sum(one.events for one in view.files)
    output.say()
    output.say(f"{waiting:,} events wait in {len(view.files)} files")


def _file_row(one: FileView) -> Row:
    largest = sorted(one.queues.items(), key=lambda pair: -pair[1])
    queues = ", ".join(f"{queue} {count:,}" for queue, count in largest[:QUEUES_SHOWN])
    more = f", and {len(largest) - QUEUES_SHOWN} more" if len(largest) > QUEUES_SHOWN else ""
    age = "" if one.oldest_us is None else f"{_age_seconds(one.oldest_us):,.1f} s"
    damaged = format_size(one.damaged_bytes) if one.damaged_bytes else ""
    return (one.name, one.kind, one.state, one.events, format_size(one.size_bytes), age, damaged, queues + more)


def view_document(view: DirectoryView) -> dict[str, object]:
    return {
        "directory": view.directory,
        "drainer": view.drainer,
        "events": sum(one.events for one in view.files),
        "files": [
            {
                "name": one.name,
                "kind": one.kind or None,
                "state": one.state,
                "bytes": one.size_bytes,
                "events": one.events,
                "oldestSeconds": None if one.oldest_us is None else round(_age_seconds(one.oldest_us), 3),
                "queues": one.queues,
                "damagedBytes": one.damaged_bytes,
            }
            for one in view.files
        ],
    }


def _age_seconds(accepted_us: int) -> float:
    return max(0.0, time.time() - accepted_us / 1e6)


def show_server(status: dict[str, Any]) -> None:
    """What `/api/v1/status/buffers` says."""
    health = "the store takes messages" if status["dbHealthy"] else f"the store is away: {status['reason']}"
    output.say(health)
    if status["recovering"]:
        output.say(f"recovering: {status['recovering']}")
    if not status["isDrainer"]:
        output.say("another process drains the directory; what follows is this one's part")
    output.say(
        f"{status['pending']:,} events wait, {status['failed']:,} are refused; {format_size(status['bytes'])} bytes, "
        f"the oldest {status['oldestSeconds']:,.1f} s; {status['partitionsHeld']:,} partitions held"
    )
    if status["queues"]:
        output.say()
        rows = sorted(status["queues"].items(), key=lambda pair: -pair[1])
        output.show_table(("queue", "events"), rows, right=("events",))
    if status["failedFiles"]:
        output.say()
        failed = [(one["name"], one["queue"], format_size(one["bytes"])) for one in status["failedFiles"]]
        output.show_table(("failed file", "queue", "size"), failed, right=("size",))
    for title, names in (("damaged", status["damagedFiles"]), ("unknown", status["unknownFiles"])):
        for name in names:
            output.say(f"{title}: {name}")


# a file


def show_events(file: Path, events: FileEvents, rows: Sequence[Row]) -> None:
    columns = ("position", "queue", "partition", "transaction id", "accepted at", "bytes", "payload")
    output.show_table(columns, rows, right=("position", "bytes"))
    output.say()
    drained = f"; up to position {events.drained_bytes:,} they are stored" if events.drained_bytes else ""
    shown = "" if len(rows) == events.count else f"{len(rows):,} of "
    output.say(f"{file}: {shown}{events.count:,} events{drained}")


def event_row(found: Found, cipher: Cipher | None) -> Row:
    event = found.event
    payload = _opened(event, cipher)
    text = SEALED if payload is None else payload.decode(errors="replace")
    short = text if len(text) <= PAYLOAD_CHARACTERS else text[: PAYLOAD_CHARACTERS - 1] + "…"
    where = (found.position, event.queue, event.partition, event.transaction_id)
    return (*where, _accepted(event) or "", found.size_bytes, short)


def event_document(found: Found, cipher: Cipher | None) -> dict[str, object]:
    event = found.event
    payload = _opened(event, cipher)
    return {
        "position": found.position,
        "bytes": found.size_bytes,
        "queue": event.queue,
        "partition": event.partition,
        "transactionId": event.transaction_id,
        "traceId": event.trace_id or None,
        "namespace": event.namespace or None,
        "task": event.task or None,
        "failover": event.failover,
        "acceptedAt": _accepted(event),
        "encoding": event.encoding or "json",
        "sealed": payload is None,
        "payload": None if payload is None else _decoded(payload),
    }


def _accepted(event: Event) -> str | None:
    return datetime.fromtimestamp(event.accepted_us / 1e6, UTC).isoformat() if event.accepted_us else None


def _opened(event: Event, cipher: Cipher | None) -> bytes | None:
    """The payload as it came; None when it is sealed and the key is missing or another."""
    try:
        return payload_of(event, cipher)
    except Permanent:
        return None


def _decoded(payload: bytes) -> object:
    """The value, where Python and JSON agree on it; else the text."""
    try:
        value: object = json.loads(payload)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return payload.decode(errors="replace")
    return value


def show_damage(damages: Sequence[Damage]) -> None:
    if damages:
        output.say()
        rows = [(damage.position, damage.size, _kind(damage), damage.reason) for damage in damages]
        output.show_table(("damaged at", "bytes", "kind", "reason"), rows, right=("damaged at", "bytes"))


def _kind(damage: Damage) -> str:
    return "torn end" if damage.is_torn_tail else "damaged"


def damage_document(damage: Damage) -> dict[str, object]:
    return {
        "position": damage.position,
        "bytes": damage.size,
        "reason": damage.reason,
        "tornTail": damage.is_torn_tail,
    }
