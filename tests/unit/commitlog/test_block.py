"""Records: what goes in comes out, and nothing that is not a record is taken for one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.logs import SEGMENT, batches, encode
from forebay.commitlog import block
from forebay.commitlog.block import (
    Header,
    checksum_of_path,
    checksum_of_place,
    crc_holds,
    encode_filler,
    parse_header,
    sealed,
)
from forebay.commitlog.chunk import Chunk
from forebay.commitlog.columns import SCHEMA, BodyRefused, decode
from forebay.model.message import MessageBatch


def decoded_at(data: bytes, offset: int, header: Header) -> tuple[bytes, pa.RecordBatch]:
    chunk = Chunk.of(data, header.first_seq, header.message_count)
    return decode(chunk, chunk.data_at + offset, header)


def decoded(data: bytes) -> tuple[Header, bytes, pa.RecordBatch]:
    header = parse_header(data, 0, 0)
    assert isinstance(header, Header)
    assert crc_holds(data, 0, header, checksum_of_path(SEGMENT))
    tag, found = decoded_at(data, 0, header)
    found.validate(full=True)
    return header, tag, found


@given(batches(), st.integers(1, 1 << 40), st.binary(min_size=16, max_size=16), st.booleans())
def test_a_batch_comes_back_as_it_was(batch: MessageBatch, first_seq: int, tag: bytes, compress: bool) -> None:
    data = b"".join(encode([batch], first_seq, tag=tag, compress=compress))
    header, found_tag, found = decoded(data)
    count = len(batch)
    assert found.schema == SCHEMA
    assert found_tag == tag
    assert header.size == len(data)
    assert (header.created_min_us, header.created_max_us) == (min(batch.created_us), max(batch.created_us))
    assert found.column("seq").to_pylist() == list(range(first_seq, first_seq + count))
    assert found.column("created_at").cast(pa.int64()).to_pylist() == list(batch.created_us)
    assert found.column("flags").to_pylist() == list(batch.flags or [0] * count)
    for name, column in zip(SCHEMA.names[3:], batch.texts(), strict=True):
        wanted = [b""] * count if column is None else list(column)
        assert found.column(name).cast(pa.binary()).to_pylist() == wanted


@given(st.lists(batches(), min_size=1, max_size=4))
def test_batches_that_share_a_record_come_back_in_order(parts: list[MessageBatch]) -> None:
    _, _, found = decoded(b"".join(encode(parts, 1)))
    singles = [decoded(b"".join(encode([part], 1)))[2] for part in parts]
    for name in SCHEMA.names[1:]:
        assert found.column(name).to_pylist() == [v for single in singles for v in single.column(name).to_pylist()]


def test_what_shrinks_is_compressed_and_what_does_not_is_not() -> None:
    def is_snappy(*payloads: bytes) -> bool:
        batch = MessageBatch(payloads, [1] * len(payloads))
        return decoded(b"".join(encode([batch], 1, compress=block.sample_shrinks(batch.payloads))))[0].is_snappy

    chance = random.Random(1)
    assert is_snappy(*(b'{"user": "ada", "action": "login", "at": %d}' % number for number in range(50)))
    assert not is_snappy(*(chance.randbytes(500) for _ in range(20)))
    assert not is_snappy(b"tiny")


def test_an_uncompressed_record_leaves_the_next_one_aligned() -> None:
    for size in range(40):
        data = b"".join(encode([MessageBatch([b"x" * size], [1], [b"p" * (size % 7)])], 1))
        assert len(data) % 8 == 0


def test_a_record_at_an_odd_address_is_read_all_the_same() -> None:
    data = b"".join(encode([MessageBatch([b"abc", b"de"], [7, 8])], 5))
    for shift in range(9):
        shifted = bytes(shift) + data
        header = parse_header(shifted, shift, 0)
        assert isinstance(header, Header)
        _, found = decoded_at(shifted, shift, header)
        found.validate(full=True)
        assert found.column("payload").to_pylist() == [b"abc", b"de"]
        assert found.column("created_at").buffers()[1].address % 8 == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4096, 4097])
@pytest.mark.parametrize("value", [b"", b"eu", b"a-long-partition"])
def test_columns_with_one_value_for_all_come_back_as_they_were(count: int, value: bytes) -> None:
    batch = MessageBatch([b"%d" % number for number in range(count)], [7] * count, [value] * count)
    found = decoded(b"".join(encode([batch], 5)))[2]
    assert found.column("partition").to_pylist() == [value.decode()] * count
    assert found.column("payload").to_pylist() == list(batch.payloads)


@pytest.mark.parametrize("offset", [-4, 6])
def test_offsets_that_do_not_start_inside_their_column_are_refused(offset: int) -> None:
    record = bytearray(b"".join(encode([MessageBatch([b"abc", b"de"], [7, 8])], 5)))
    offsets_at = 36 + 20 + 16
    record[offsets_at : offsets_at + 4] = offset.to_bytes(4, "little", signed=True)
    header = parse_header(bytes(record), 0, 0)
    assert isinstance(header, Header)
    with pytest.raises(BodyRefused, match=f"bytes {offset} to 5"):
        decoded_at(bytes(record), 0, header)


def test_a_record_without_crc_is_accepted_and_its_columns_are_checked() -> None:
    record = bytearray(b"".join(encode([MessageBatch([b"abc", b"de"], [7, 8])], 5)[:-1]))
    record[7] &= ~0x40
    header = parse_header(bytes(record), 0, 0)
    assert isinstance(header, Header)
    assert not header.has_crc
    assert header.size == len(record)
    assert decoded_at(bytes(record), 0, header)[1].column("payload").to_pylist() == [b"abc", b"de"]
    offsets_at = 36 + 20 + 16
    record[offsets_at + 4 : offsets_at + 8] = (9999).to_bytes(4, "little")
    with pytest.raises(BodyRefused):
        decoded_at(bytes(record), 0, header)


@pytest.mark.parametrize(
    ("word", "first_seq", "count", "low", "high", "complaint"),
    [
        (0, 1, 1, 0, 0, "a record of 0 bytes"),
        ((1 << 62) - 1, 1, 1, 0, 0, "bytes is outside 28-67108864"),
        (100, 0, 1, 0, 0, "first_seq 0"),
        (100, 1 << 63, 1, 0, 0, "first_seq 9223372036854775808"),
        (100, 1, (1 << 20) + 1, 0, 0, "1048577 messages is over 1048576"),
        (100, 1, 1, 5, 4, "created range 5-4"),
        (100, 1, 1, 0, 1 << 63, "created range"),
    ],
)
def test_impossible_headers_are_refused(
    word: int, first_seq: int, count: int, low: int, high: int, complaint: str
) -> None:
    header = parse_header(block.HEADER.pack(word | block.CRC_FOLLOWS, first_seq, count, low, high), 0, 0)
    assert isinstance(header, str)
    assert complaint in header


def test_a_snappy_body_of_absurd_length_is_refused_before_memory_is_taken() -> None:
    bomb = b"\xff\xff\xff\xff\x0f" + bytes(40)
    header = Header(0, 36 + len(bomb), 1, 1, 0, 0, is_snappy=True, has_crc=False, is_placed=False)
    with pytest.raises(BodyRefused, match="4294967295 bytes is over"):
        decoded_at(bytes(36) + bomb, 0, header)


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_filler_is_as_long_as_what_it_replaces_and_tells_what_was_lost(is_placed: bool) -> None:
    place = checksum_of_place(checksum_of_path(SEGMENT), 0) if is_placed else block.NO_PLACE
    for size in (40, 41, 1000):
        data = b"".join(sealed(encode_filler(7, 11, bytes(size), is_placed=is_placed), place))
        header = parse_header(data, 0, 0)
        assert isinstance(header, Header)
        assert (len(data), header.size) == (size, size)
        assert header.is_filler
        assert (header.first_seq, header.next_seq) == (7, 12)
        assert crc_holds(data, 0, header, checksum_of_path(SEGMENT))


def test_a_record_is_one_at_its_place_alone() -> None:
    data = b"".join(encode([MessageBatch([b"abc"], [7])], 5, position=64))
    for position, path, holds in (
        (64, SEGMENT, True),
        (65, SEGMENT, False),
        (64, "2026/01/01/0000000000000002.data", False),
        (64, "2026/01/02/0000000000000001.data", False),
    ):
        header = parse_header(data, 0, position)
        assert isinstance(header, Header)
        assert crc_holds(data, 0, header, checksum_of_path(path)) is holds
