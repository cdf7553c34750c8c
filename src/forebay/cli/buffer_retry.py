"""Buffered messages as items of `POST /push`: to be exported, or to be pushed to a server in order and once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from forebay.broker.encryption import Cipher
from forebay.cli import output
from forebay.cli.buffer_tables import damage_document
from forebay.cli.push_command import push_items
from forebay.cli.push_lines import REQUEST_BYTES_MAX
from forebay.client import Client
from forebay.errors import Permanent
from forebay.filesystem import RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.event import Event, is_binary, payload_of
from forebay.ingest.frames import Damage
from forebay.ingest.inspection import FileEvents, events_of


class PushLine(Struct, rename="camel", omit_defaults=True, gc=False):
    """An item of `POST /push`."""

    queue: str
    partition: str
    transaction_id: str
    payload: Raw
    trace_id: str = ""
    namespace: str = ""
    task: str = ""


@dataclass(slots=True)
class Retried:
    pushed: int = 0
    duplicates: int = 0
    buffered: int = 0
    damages: list[Damage] = field(default_factory=list)
    renamed: Path = Path()

    def document(self) -> dict[str, object]:
        return {
            "pushed": self.pushed,
            "duplicates": self.duplicates,
            "buffered": self.buffered,
            "damaged": [damage_document(damage) for damage in self.damages],
            "renamed": self.renamed,
        }


_encode = msgspec.json.Encoder().encode


def push_line(event: Event, path: Path, cipher: Cipher | None) -> bytes:
    """The item, opened with the key; refuses what `POST /push` has no member for."""
    payload = payload_of(event, cipher)
    if is_binary(event) or event.headers:
        raise Permanent(
            f"{path}: the message {event.transaction_id!r} of queue {event.queue!r} "
            f"{'is no JSON' if is_binary(event) else 'has headers'}, which a push over HTTP cannot carry",
            remedy="Let a server drain the file: put it into failed/ of its buffer directory while it is stopped",
        )
    return _encode(
        PushLine(
            event.queue,
            event.partition,
            event.transaction_id,
            Raw(payload),
            event.trace_id,
            event.namespace,
            event.task,
        )
    )


def retry_file(client: Client, path: Path, cipher: Cipher | None, *, batch: int = 1000) -> Retried:
    """Push the file's messages in order, and rename it when all are accepted. Nothing is pushed if one cannot be."""
    done = Retried()
    base = path.parent.parent if path.parent.name == "failed" else path.parent
    with _drained_here_alone(base, path):
        events = events_of(path)
        position = events.drained_bytes
        for found in events_of(path, position):
            push_line(found.event, path, cipher)
        with output.progress("pushing", path.stat().st_size - position) as advance:
            while not done.renamed.name:
                events = events_of(path, position)
                for items in _requests(events, path, cipher, batch):
                    answers = push_items(client, [Raw(item) for item in items])
                    done.pushed += len(answers)
                    done.duplicates += sum(answer.status == "duplicate" for answer in answers)
                    done.buffered += sum(answer.status == "buffered" for answer in answers)
                    advance(sum(map(len, items)))
                done.damages += events.damages
                position = events.end
                _rename_if_all(path, base, position, done)
    return done


def _requests(events: FileEvents, path: Path, cipher: Cipher | None, batch: int) -> Iterator[list[bytes]]:
    items: list[bytes] = []
    size = 0
    for found in events:
        item = push_line(found.event, path, cipher)
        if items and (len(items) >= batch or size + len(item) > REQUEST_BYTES_MAX):
            yield items
            items, size = [], 0
        items.append(item)
        size += len(item)
    if items:
        yield items


@contextmanager
def _drained_here_alone(base: Path, path: Path) -> Iterator[None]:
    """A server that drains the directory would lose a file under its hands."""
    directory = BufferDirectory(RealFilesystem(), base)
    if not (base / "drain.lock").exists():  # a file by itself
        yield
        return
    if not directory.take_drain_lock(f"forebay buffers retry, process {os.getpid()}"):
        raise Permanent(
            f"{path}: a running server drains {base} and offers what is in it again by itself, every second",
            remedy="Ask it what holds it up: `forebay buffers list --server URL`, and its log",
        )
    try:
        yield
    finally:
        directory.release_drain_lock()


def _rename_if_all(path: Path, base: Path, position: int, done: Retried) -> None:
    """Unless another process appended meanwhile: then the rest is pushed first."""
    filesystem = RealFilesystem()
    lock = filesystem.wait_for_lock(base / "append.lock") if (base / "append.lock").exists() else None
    try:
        if filesystem.status(path).size > position:
            return
        done.renamed = path.with_name(f"{path.name}.retried")
        if done.renamed.exists():
            raise Permanent(f"all is pushed, but {done.renamed} exists already", remedy="Move one of the files away")
        filesystem.replace(path, done.renamed)
        path.with_suffix(".pos").unlink(missing_ok=True)
        filesystem.sync_directory(path.parent)
    finally:
        if lock is not None:
            lock.release()
