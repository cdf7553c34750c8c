"""Chunks: many records of one buffer, each a batch of its own, whoever asks and in whatever order."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fixtures.logs import encode
from forebay.commitlog.block import Header, parse_header
from forebay.commitlog.chunk import Chunk
from forebay.commitlog.columns import SCHEMA, decode
from forebay.model.message import MessageBatch

Wanted = list[tuple[int, bytes, str]]


def records(count: int) -> tuple[bytes, list[tuple[int, Header, Wanted]]]:
    """Records one behind the other, of 1 to 7 messages, some without partitions; where they are, what they hold."""
    chance = random.Random(5)
    data, found, seq = b"", [], 1
    for number in range(count):
        size = chance.randint(1, 7)
        payloads = [chance.randbytes(chance.randint(0, 40)) for _ in range(size)]
        partitions = None if number % 3 else [b"p%d" % chance.randint(0, 99) for _ in payloads]
        record = b"".join(encode([MessageBatch(payloads, [number] * size, partitions)], seq))
        header = parse_header(record, 0, len(data))
        assert isinstance(header, Header)
        texts = [value.decode() for value in partitions or [b""] * size]
        found.append((len(data), header, list(zip(range(seq, seq + size), payloads, texts, strict=True))))
        data += record
        seq += size
    return data, found


def rows(batch: pa.RecordBatch) -> Wanted:
    batch.validate(full=True)
    return list(zip(*(batch.column(name).to_pylist() for name in ("seq", "payload", "partition")), strict=True))


@pytest.mark.parametrize("messages_max", [0, 3, 40, 1000])
def test_batches_of_a_chunk_stay_as_they_were_when_others_are_made(messages_max: int) -> None:
    data, wanted = records(50)
    chunk = Chunk(len(data), 1, messages_max)
    chunk.body[chunk.data_at : chunk.data_at + len(data)] = data
    batches = [decode(chunk, chunk.data_at + offset, header)[1] for offset, header, _ in reversed(wanted)]
    assert all(batch.schema == SCHEMA for batch in batches)
    assert [rows(batch) for batch in reversed(batches)] == [content for _, _, content in wanted]


def test_a_batch_is_read_in_place_as_long_as_its_numbers_have_room() -> None:
    data, wanted = records(50)
    total = sum(len(content) for _, _, content in wanted)
    chunk = Chunk.of(data, 1, total)
    before = pa.total_allocated_bytes()
    batches = [decode(chunk, chunk.data_at + offset, header)[1] for offset, header, _ in wanted]
    assert pa.total_allocated_bytes() == before
    assert sum(batch.num_rows for batch in batches) == total


def test_several_threads_may_make_batches_of_one_chunk() -> None:
    data, wanted = records(50)
    chunk = Chunk.of(data, 1, 1000)

    def read_all(seed: int) -> None:
        order = list(wanted)
        random.Random(seed).shuffle(order)
        for offset, header, content in order * 4:
            assert rows(decode(chunk, chunk.data_at + offset, header)[1]) == content

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read_all, range(8)))


def test_a_batch_lives_on_when_nobody_holds_its_chunk() -> None:
    data, wanted = records(3)
    chunk = Chunk.of(data, 1, 30)
    offset, header, content = wanted[2]
    batch = decode(chunk, chunk.data_at + offset, header)[1]
    del chunk
    others = [Chunk.of(bytes([255]) * len(data), 1, 30) for _ in range(20)]
    assert rows(batch) == content
    assert len(others) == 20


def test_numbers_go_on_however_many_messages_a_chunk_holds() -> None:
    sizes = [1000, 500, 3, 2500, 1, 96]
    first_seqs = [1_000_000 + sum(sizes[:index]) for index in range(len(sizes))]
    parts = [
        b"".join(encode([MessageBatch([b""] * size, [1] * size)], first_seq))
        for size, first_seq in zip(sizes, first_seqs, strict=True)
    ]
    for messages_max in (sum(sizes), 1024, 1700):
        chunk = Chunk(sum(map(len, parts)), first_seqs[0], messages_max)
        offset = chunk.data_at
        found: list[int] = []
        for part in parts:
            chunk.body[offset : offset + len(part)] = part
            header = parse_header(chunk.body, offset, 0)
            assert isinstance(header, Header)
            found += decode(chunk, offset, header)[1].column("seq").to_pylist()
            offset += len(part)
        assert found == list(range(first_seqs[0], first_seqs[0] + sum(sizes)))
