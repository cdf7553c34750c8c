"""Make the golden log of a format version and the JSON file that says what must be read from it.

Usage, from the root of the checkout::

    .venv/bin/python tests/data/commitlog/make_golden.py VERSION NEW_DIRECTORY

The golden bytes in `v1/` and `v2/` were made once by this script and are never made again: logs in these formats are on
people's disks, and the tests prove that today's code still reads and writes them. So the script only writes where
nothing is. It is kept to show how each byte came about, and as the start of a `make_golden` for a version 3.

In version 2 the CRC of a record covers where it stands; all else is the same.

The log has lived like this:

1. Segment 1 was written: a record with every column, one with columns absent, one that is Snappy. It was sealed.
2. Segment 2 was written: a record with a tag, one that a bad disk then damaged, one by a writer that sets no CRC (bit
   62 clear), one behind it. A salvage turned the damaged record into a filler and put `manifest.1` in force.
3. Segment 3 was written: one record, then the log was closed (`manifest.2`), opened again, one record more, killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.commitlog import block, layout, manifest
from forebay.commitlog.manifest import Entries, Entry, Manifest
from forebay.model.message import MessageBatch

NEW_YEAR_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""
DAY_US = 86_400_000_000
TAG = bytes.fromhex("00112233445566778899aabbccddeeff")
TEXT_COLUMNS = ("partition", "transaction_id", "trace_id", "headers")


@dataclass
class Place:
    """Where the next record of a segment goes."""

    version: int
    path: str
    position: int = 0

    @property
    def is_placed(self) -> bool:
        return self.version > 1

    def sealed(self, pieces: list[block.Piece]) -> bytes:
        checksum = block.checksum_of_place(block.checksum_of_path(self.path), self.position)
        return b"".join(block.sealed(pieces, checksum if self.is_placed else block.NO_PLACE))


@dataclass
class Piece:
    """A record of the golden log and the words about it in the JSON file."""

    data: bytes
    words: dict[str, Any]
    next_seq: int


def record(
    place: Place, what: str, batch: MessageBatch, first_seq: int, *, tag: bytes = block.NO_TAG, compress: bool = False
) -> Piece:
    pieces = block.encode([batch], first_seq, tag=tag, compress=compress, is_placed=place.is_placed)
    data = place.sealed(pieces)
    columns: dict[str, Any] = {"created_us": list(batch.created_us)}
    if batch.flags is not None:
        columns["flags"] = list(batch.flags)
    for name, values in zip(TEXT_COLUMNS, batch.texts(), strict=False):
        if values is not None:
            columns[name] = [value.decode() for value in values]
    columns["payload"] = [payload.hex() for payload in batch.payloads]
    words: dict[str, Any] = {"what": what, "first_seq": first_seq, "count": len(batch), "tag": tag.hex()}
    words |= {"is_snappy": compress, "has_crc": True, "columns": columns}
    return Piece(data, words, first_seq + len(batch))


def without_crc(piece: Piece) -> Piece:
    """The same record as a writer without checksums makes it: bit 62 clear, nothing behind the data."""
    word = int.from_bytes(piece.data[:8], "little") & ~(1 << 62)
    return Piece(word.to_bytes(8, "little") + piece.data[8:-4], piece.words | {"has_crc": False}, piece.next_seq)


def filler(place: Place, what: str, damaged: Piece) -> Piece:
    """What salvage makes of a record of which one byte was flipped."""
    broken = bytearray(damaged.data)
    broken[80] ^= 0xFF
    first, last = damaged.words["first_seq"], damaged.next_seq - 1
    data = place.sealed(block.encode_filler(first, last, bytes(broken), is_placed=place.is_placed))
    words: dict[str, Any] = {"what": what, "first_seq": first, "count": 0, "last_lost_seq": last}
    return Piece(data, words | {"is_snappy": False, "has_crc": True, "unreadable": broken.hex()}, damaged.next_seq)


Making = Iterator[Callable[[Place], Piece]]


def first_segment() -> Making:
    every_column = MessageBatch(
        payloads=[b'{"n":1}', b"", bytes([0, 255, 128, 10])],
        created_us=[NEW_YEAR_US + 2, NEW_YEAR_US + 1, NEW_YEAR_US + 3],
        partitions=[b"Default", "café".encode(), b""],
        transaction_ids=[b"tx-1", b"tx-2", b"tx-3"],
        trace_ids=[b"", b"4bf92f3577b34da6", b""],
        headers=[b'{"a":"b"}', b"", '{"k":"水"}'.encode()],
        flags=[0, 0, 1],
    )
    two_columns = MessageBatch([b"four", b"five!"], [NEW_YEAR_US + 10, NEW_YEAR_US + 11])
    twelve = range(12)
    repetitive = MessageBatch(
        payloads=[b'{"user":"user-%d","page":"/checkout","country":"AT"}' % number for number in twelve],
        created_us=[NEW_YEAR_US + 20 + number for number in twelve],
        partitions=[b"user-%d" % (number % 3) for number in twelve],
    )
    yield lambda place: record(place, "every column", every_column, 1)
    yield lambda place: record(place, "columns absent", two_columns, 4)
    yield lambda place: record(place, "Snappy", repetitive, 6, compress=True)


def second_segment() -> Making:
    tagged = MessageBatch([b"eighteen", b"nineteen"], [NEW_YEAR_US + 40, NEW_YEAR_US + 41], [b"p", b"q"])
    lost = MessageBatch([b"twenty", b"twenty-one", b"twenty-two"], [NEW_YEAR_US + 50] * 3)
    unchecked = MessageBatch([b"twenty-three", b"twenty-four"], [NEW_YEAR_US + 60, NEW_YEAR_US + 60])
    behind = MessageBatch([b"twenty-five"], [NEW_YEAR_US + 70], trace_ids=[b"t"])
    yield lambda place: record(place, "a tag", tagged, 18, tag=TAG)
    yield lambda place: filler(place, "a filler", record(place, "", lost, 20))
    yield lambda place: without_crc(record(place, "bit 62 clear", unchecked, 23))
    yield lambda place: record(place, "behind a record without CRC, at a position that is no multiple of 8", behind, 25)


def third_segment() -> Making:
    listed = MessageBatch([b"twenty-six", b"twenty-seven"], [NEW_YEAR_US + DAY_US, NEW_YEAR_US + DAY_US + 1])
    unlisted = MessageBatch([b"twenty-eight"], [NEW_YEAR_US + DAY_US + 9], [b"Default"])
    yield lambda place: record(place, "up to here the manifest tells", listed, 26)
    yield lambda place: record(place, "written since the manifest", unlisted, 28)


def rows(words: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a record as a reader must pass them on: nothing is absent, at most empty."""
    empty: dict[str, Any] = {"flags": 0, "partition": "", "transaction_id": "", "trace_id": "", "headers": ""}
    columns = words.get("columns", {})
    found = []
    for index in range(words["count"]):
        row = {"seq": words["first_seq"] + index} | empty
        found.append(row | {name: values[index] for name, values in columns.items()})
    return found


def manifest_words(slot: str, told: Manifest) -> dict[str, Any]:
    words: dict[str, Any] = {"slot": slot, "next_seq": told.next_seq, "generation": told.generation}
    words |= {"file_seq": told.file_seq, "write_pos": told.write_pos, "msg_count": told.msg_count, "path": told.path}
    return words | {"entries": [entry._asdict() for entry in told.entries]}


def made(making: Making, place: Place) -> Iterator[Piece]:
    for make_piece in making:
        piece = make_piece(place)
        place.position += len(piece.data)
        yield piece


def make(target: Path, version: int) -> None:
    log = target / "log"
    starts = (("2026/01/01", 1), ("2026/01/01", 18), ("2026/01/02", 26))
    segments = [first_segment(), second_segment(), third_segment()]
    document: dict[str, Any] = {"segments": [], "manifests": [], "messages": []}
    entries = Entries()
    for (day, first_seq), making in zip(starts, segments, strict=True):
        path = layout.segment_path(day, first_seq)
        pieces = list(made(making, Place(version, path)))
        (log / path).parent.mkdir(parents=True, exist_ok=True)
        (log / path).write_bytes(b"".join(piece.data for piece in pieces))
        records, position = [], 0
        for piece in pieces:
            records.append({"position": position, "size": len(piece.data)} | piece.words)
            document["messages"] += rows(piece.words)
            position += len(piece.data)
        document["segments"].append({"path": path, "records": records})
        if len(document["segments"]) < len(segments):
            entries = entries.with_entry(Entry(first_seq, pieces[-1].next_seq - 1, position, path))
    active = document["segments"][-1]
    listed = active["records"][0]
    salvaged = Manifest(26, 3, 3, 0, 0, active["path"], entries, version)
    closed = Manifest(28, 4, 3, listed["size"], listed["count"], active["path"], entries, version)
    for slot, told in (("manifest.1", salvaged), ("manifest.2", closed)):
        (log / slot).write_bytes(manifest.encode(told))
        document["manifests"].append(manifest_words(slot, told))
    (log / "manifest.current").write_bytes(b"\x02")
    text = json.dumps(document, indent=1, ensure_ascii=True)
    (target / "expected.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True)  # an error where something is already
    make(target, int(sys.argv[1]))
