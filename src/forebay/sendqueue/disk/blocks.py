"""Blocks: how one batch stands in a chunk, and how the next one is found behind damage.

Little-endian::

    offset  size  field
    0       8     header u64: bits 0-61 length of the data, bit 62 a CRC follows, bit 63 the data is Snappy (raw format)
    8       n     data
    8+n     4     CRC-32C (Castagnoli) u32 of the block's offset (u64), header and data, if bit 62 is set

The writer always sets bit 62. The offset is part of the CRC, so that a batch that holds the bytes of a block is never
taken for one when its own block is damaged. A reader accepts bit 62 clear, as the originals write it, where it has
reason to (`reading.Trust`). A header of zero is no block: no batch is empty.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

import cramjam
from crc32c import crc32c

HEADER = Struct("<Q")
OFFSET = Struct("<Q")
HEADER_BYTES = HEADER.size
CRC = Struct("<I")
CRC_BYTES = CRC.size
OVERHEAD_BYTES = HEADER_BYTES + CRC_BYTES

DATA_BYTES_MAX = 1 << 30
CRC_FOLLOWS = 1 << 62
IS_SNAPPY = 1 << 63
LENGTH_MASK = CRC_FOLLOWS - 1

_PLAUSIBLE = re.compile(rb"(?s)(?=(...[\x00-\x40]\x00\x00\x00[\x40\xc0]))")
"""A header with a CRC and at most `DATA_BYTES_MAX` of data, anywhere."""


class BlockDamaged(Exception):
    """What stands at an offset is no block; the message says why."""


class Header(NamedTuple):
    length: int
    has_crc: bool
    is_snappy: bool

    @property
    def block_bytes(self) -> int:
        return HEADER_BYTES + self.length + (CRC_BYTES if self.has_crc else 0)


def packed(data: bytes, offset: int, *, compress: bool) -> bytes:
    """A block that will stand at this offset. Data that Snappy does not make smaller stays as it is."""
    flags = CRC_FOLLOWS
    if compress:
        snappy = bytes(cramjam.snappy.compress_raw(data))
        if len(snappy) < len(data):
            data, flags = snappy, CRC_FOLLOWS | IS_SNAPPY
    header = HEADER.pack(len(data) | flags)
    return b"".join((header, data, CRC.pack(crc32c(data, crc32c(header, crc32c(OFFSET.pack(offset)))))))


def header_of(raw: bytes | memoryview) -> Header:
    """Read the first 8 bytes of a block. Raises BlockDamaged for what cannot be one."""
    if len(raw) < HEADER_BYTES:
        raise BlockDamaged("the file ends inside a header")
    (value,) = HEADER.unpack_from(raw)
    length = value & LENGTH_MASK
    if value == 0:
        raise BlockDamaged("zeros where a block should begin")
    if not 0 < length <= DATA_BYTES_MAX:
        raise BlockDamaged(f"a block of {length} bytes, more than the {DATA_BYTES_MAX} that one may have")
    return Header(length, bool(value & CRC_FOLLOWS), bool(value & IS_SNAPPY))


def data_of(header: Header, block: bytes | memoryview, offset: int) -> bytes:
    """The batch in a whole block. Raises BlockDamaged if its CRC or its compression is wrong."""
    end = HEADER_BYTES + header.length
    if len(block) < header.block_bytes:
        raise BlockDamaged(f"the file ends inside a block: {len(block)} of {header.block_bytes} bytes")
    if header.has_crc and CRC.unpack_from(block, end)[0] != crc32c(bytes(block[:end]), crc32c(OFFSET.pack(offset))):
        raise BlockDamaged("its checksum is wrong")
    data = bytes(block[HEADER_BYTES:end])
    if not header.is_snappy:
        return data
    try:
        return bytes(cramjam.snappy.decompress_raw(data))
    except Exception as error:
        raise BlockDamaged(f"it cannot be decompressed ({error})") from error


def plausible_headers(raw: bytes) -> list[int]:
    """Where in these bytes a block with a CRC may begin; whether one does, its CRC decides."""
    return [match.start() for match in _PLAUSIBLE.finditer(raw)]
