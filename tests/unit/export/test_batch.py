"""Batches on disk: what was written is read again, the originals' batches are too, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch, decode, encode
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.sendqueue.disk.blocks import HEADER, IS_SNAPPY
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import FastQueue
from unit.export.test_splitting import metrics


@given(body=st.binary(max_size=200), kind=st.sampled_from([kind for kind in Kind if kind is not Kind.MESSAGES]))
def test_what_was_written_is_read_again(body: bytes, kind: Kind) -> None:
    found = decode(encode(ExportBatch(kind, body, 3, 17, "key")))
    assert (found.kind, found.body, found.items, found.accepted_us, found.key) == (kind, body, 3, 17, "key")


@given(data=st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: b"\x0a" + rest))
def test_bytes_that_are_no_batch_are_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        found = decode(data)
    except ValueError:
        return
    assert found.items > 0


def test_batch_of_a_newer_version_is_refused_and_not_taken_for_an_originals() -> None:
    data = bytearray(encode(ExportBatch(Kind.METRICS, b"body", 1, 1, "key")))
    assert data[5] == 1
    data[5] = 2
    with pytest.raises(ValueError, match="a batch of version 2"):
        decode(bytes(data))


@pytest.mark.parametrize("version", [1, 2])
def test_directory_that_metrics_governor_has_left_is_sent(version: int, tmp_path: Path) -> None:
    bodies = [metrics(1, 1, number, 2).SerializeToString() for number in range(1, 30)]
    blocks = [cramjam.snappy.compress_raw(body) for body in bodies]
    stream = b"".join(HEADER.pack(len(block) | IS_SNAPPY) + bytes(block) for block in blocks)
    (tmp_path / f"{0:016x}").write_bytes(stream)
    meta = {"name": "fastqueue", "reader_offset": 0, "writer_offset": len(stream), "version": version}
    if version == 2:
        meta |= {"entry_count": len(bodies), "total_bytes": sum(map(len, bodies))}
    (tmp_path / "fastqueue.meta").write_text(json.dumps(meta))
    queue = FastQueue(tmp_path, Limits(1000, 1 << 20), CODEC, SystemClock(), RealFilesystem())
    found = []
    while (entry := queue.claim()) is not None:
        found.append(entry.batch)
        queue.confirm(entry)
    queue.close()
    assert [batch.body for batch in found] == bodies
    assert [batch.items for batch in found] == [2 * number for number in range(1, 30)]
    assert {batch.kind for batch in found} == {Kind.METRICS}
    assert len({batch.key for batch in found}) == len(bodies)
    assert decode(bodies[0]).key == found[0].key
