"""Reading blocks out of chunks, and getting past what is damaged.

Behind a damaged block the next one is looked for, byte by byte: a header whose CRC is right. The length in a damaged
header is not believed. Blocks without a CRC (of the originals) are found again at the start of the next chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.filesystem import SEARCH_BYTES
from forebay.sendqueue.disk.blocks import HEADER_BYTES, BlockDamaged, Header, data_of, header_of, plausible_headers
from forebay.sendqueue.disk.chunks import Chunks

PAGE_BYTES = 4096


class Trust(NamedTuple):
    """Which blocks may do without a CRC. Those that Forebay writes have one; what a torn write leaves has not.

    A header of zeros with one byte set looks like a block that is neither checked nor compressed: such blocks count
    only where a meta file of the originals vouches for them. One that is compressed and not checked cannot come from a
    torn write, as both flags are in the same byte.
    """

    plain_until: int = 0
    """Before this offset, any block may be without one."""
    snappy_until: int = 0
    """Before this offset, a block that is compressed may."""

    def check(self, offset: int, header: Header) -> None:
        until = max(self.plain_until, self.snappy_until if header.is_snappy else 0)
        if not header.has_crc and offset >= until:
            raise BlockDamaged("it has no checksum")


class Block(NamedTuple):
    """A whole block: where it stands, and the batch in it."""

    start: int
    end: int
    data: bytes


class Damage(NamedTuple):
    """Bytes that hold no block. `is_one`: one block with a sound header; otherwise it is not known how many."""

    start: int
    end: int
    reason: str
    is_one: bool


def block_at(chunks: Chunks, offset: int, trust: Trust) -> Block:
    """The block that begins at this offset. Raises BlockDamaged."""
    header = _header_at(chunks, offset)
    trust.check(offset, header)
    return Block(
        offset, offset + header.block_bytes, data_of(header, _read(chunks, offset, header.block_bytes), offset)
    )


def _header_at(chunks: Chunks, offset: int) -> Header:
    raw = _read(chunks, offset, HEADER_BYTES)
    if not raw:
        raise BlockDamaged("its chunk is missing")
    return header_of(raw)


def _read(chunks: Chunks, offset: int, size: int) -> bytes:
    try:
        return chunks.read(offset, size)
    except OSError as error:
        raise BlockDamaged(f"the disk does not read it ({error.strerror or error})") from error


def damage_at(chunks: Chunks, offset: int, end: int, trust: Trust, reason: str) -> Damage:
    """How far the damage reaches that begins here: to the next sound block, or to `end`."""
    found = _search(chunks, offset + 1, end, trust)
    behind = end if found is None else found
    try:
        is_one = offset + _header_at(chunks, offset).block_bytes == behind
    except BlockDamaged:
        is_one = False
    return Damage(offset, behind, reason, is_one)


def _is_block(chunks: Chunks, offset: int, trust: Trust) -> bool:
    try:
        block_at(chunks, offset, trust)
    except BlockDamaged:
        return False
    return True


def _search(chunks: Chunks, offset: int, end: int, trust: Trust) -> int | None:
    while offset < end:
        start = chunks.chunk_at(offset)
        if start is None:
            behind = chunks.start_behind(offset)
            if behind is None or behind >= end:
                return None
            offset = behind
            if _is_block(chunks, offset, trust):
                return offset
            continue
        try:
            raw = chunks.read(offset, SEARCH_BYTES)
        except OSError:
            raw = bytes(PAGE_BYTES)  # a page that the disk does not read holds nothing to find
        for place in plausible_headers(raw):
            if offset + place < end and _is_block(chunks, offset + place, trust):
                return offset + place
        # A header may stand across the end of what was read; at a chunk's end there is none left to find.
        is_last = offset + len(raw) >= chunks.end_of(start)
        offset = chunks.end_of(start) if is_last else offset + len(raw) - HEADER_BYTES + 1
        if is_last and offset < end and chunks.chunk_at(offset) is not None and _is_block(chunks, offset, trust):
            return offset
    return None


def walk(chunks: Chunks, offset: int, end: int, trust: Trust) -> Iterator[Block | Damage]:
    """Every block in this range, and every damage between them."""
    while offset < end:
        try:
            found: Block | Damage = block_at(chunks, offset, trust)
        except BlockDamaged as damaged:
            found = damage_at(chunks, offset, end, trust, str(damaged))
        yield found
        offset = found.end
