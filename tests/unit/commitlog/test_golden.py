"""Each format version, held to the byte by a log that was written once (`tests/data/commitlog/v1`, `v2`) and is never
rewritten.

Three laws. Today's code reads that log to exactly what `expected.json` says. Today's code writes the same messages as
the same bytes. And a reader that was made from the pages in `docs/internals/` alone, with `struct` and none of our
code (the functions `…_by_the_page` below), finds every field at its documented place.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import calcsize, unpack_from
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from forebay.commitlog import CommitLog, block, manifest
from forebay.commitlog.inspection import inspect, verify
from forebay.commitlog.manifest import Entries, Entry, Manifest
from forebay.commitlog.salvage import salvage
from forebay.filesystem import RealFilesystem
from forebay.model.message import MessageBatch
from forebay.testing.fake_clock import START_US, FakeClock

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "commitlog"
VERSIONS = (1, 2)
GOLDEN = {version: DATA / f"v{version}" / "log" for version in VERSIONS}
EXPECTED: dict[int, dict[str, Any]] = {
    version: json.loads((DATA / f"v{version}" / "expected.json").read_text(encoding="ascii")) for version in VERSIONS
}
RECORDS = [
    (version, segment["path"], record)
    for version in VERSIONS
    for segment in EXPECTED[version]["segments"]
    for record in segment["records"]
]
RECORD_IDS = [f"{version}: {record['what']}" for version, _, record in RECORDS]
SLOTS = [(version, told) for version in VERSIONS for told in EXPECTED[version]["manifests"]]
LOST = {20, 21, 22}

every_version = pytest.mark.parametrize("version", VERSIONS)
every_record = pytest.mark.parametrize(("version", "path", "told"), RECORDS, ids=RECORD_IDS)
every_slot = pytest.mark.parametrize(
    ("version", "told"), SLOTS, ids=[f"{version}: {told['slot']}" for version, told in SLOTS]
)


@pytest.fixture
def base(tmp_path: Path, version: int) -> Path:
    """A copy: opening writes, and the golden bytes stay as they are."""
    return Path(shutil.copytree(GOLDEN[version], tmp_path / "log"))


def golden_bytes(version: int, path: str, told: dict[str, Any]) -> bytes:
    return (GOLDEN[version] / path).read_bytes()[told["position"] : told["position"] + told["size"]]


def as_read(found: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows in the words of the JSON file."""
    created = found.column("created_at").cast(pa.int64()).to_pylist()
    rows = []
    for row, created_us in zip(found.to_pylist(), created, strict=True):
        del row["created_at"]
        rows.append(row | {"created_us": created_us, "payload": row["payload"].hex()})
    return rows


# --- the golden log itself ----------------------------------------------------------------------------------------


@every_version
def test_the_golden_log_has_one_of_everything(version: int) -> None:
    told = [record for of, _, record in RECORDS if of == version]
    kinds = {record["what"] for record in told}
    assert {"every column", "columns absent", "Snappy", "a tag", "bit 62 clear", "a filler"} <= kinds
    assert {frozenset(record.get("columns", ())) for record in told} >= {
        frozenset({"created_us", "payload"}),
        frozenset(
            {"created_us", "flags", "partition", "transaction_id", "trace_id", "headers", "payload"},
        ),
    }
    assert [record["what"] for record in told if record["is_snappy"]] == ["Snappy"]
    assert [record["what"] for record in told if not record["has_crc"]] == ["bit 62 clear"]
    assert [message["seq"] for message in EXPECTED[version]["messages"]] == [n for n in range(1, 29) if n not in LOST]


# --- today's code reads it ----------------------------------------------------------------------------------------


@every_version
def test_todays_code_reads_the_golden_log_to_exactly_what_was_written(base: Path, version: int) -> None:
    with CommitLog.open(base, clock=FakeClock(START_US)) as log:
        found = [row for batch in log.read(1) for row in as_read(batch)]
        assert (log.first_seq, log.next_seq) == (1, 29)
        assert (log.recovery.messages_adopted, log.recovery.bytes_adopted, log.recovery.damage) == (1, 112, ())
    assert found == EXPECTED[version]["messages"]


@every_version
def test_todays_code_finds_every_record_where_it_stands_with_its_tag(base: Path, version: int) -> None:
    with CommitLog.open(base, clock=FakeClock(START_US)) as log:
        found = [(r.header.position, r.header.size, r.tag_and_batch()[0].hex()) for r in log.read_records(1)]
    assert found == [(r["position"], r["size"], r["tag"]) for of, _, r in RECORDS if r["count"] and of == version]


@every_version
def test_the_golden_log_is_good_and_there_is_nothing_to_mend(base: Path, version: int) -> None:
    found = verify(RealFilesystem(), base)
    assert found.is_good
    assert found.messages == len(EXPECTED[version]["messages"])
    assert [note.partition(": ")[2] for note in found.notes] == [
        "messages 20-22 were lost before a salvage",
        "112 bytes from 120 on, written since the last manifest",
    ]
    assert not salvage(RealFilesystem(), base).changed
    for path in GOLDEN[version].rglob("*"):
        if path.is_file():
            assert (base / path.relative_to(GOLDEN[version])).read_bytes() == path.read_bytes()


@every_slot
def test_todays_code_reads_both_manifests(version: int, told: dict[str, Any]) -> None:
    (view,) = [slot for slot in inspect(RealFilesystem(), GOLDEN[version]).slots if slot.name == told["slot"]]
    assert view.manifest is not None
    assert view.is_in_force == (told["slot"] == "manifest.2")
    assert view.fault is None
    assert view.manifest.version == version
    entries = [entry._asdict() for entry in view.manifest.entries]
    names = ("next_seq", "generation", "file_seq", "write_pos", "msg_count", "path")
    assert {name: getattr(view.manifest, name) for name in names} | {"entries": entries, "slot": view.name} == told


@every_version
def test_the_golden_log_can_be_written_on(base: Path, version: int) -> None:
    with CommitLog.open(base, clock=FakeClock(START_US)) as log:
        slots = inspect(RealFilesystem(), base).slots
        assert [slot.manifest.version for slot in slots if slot.manifest and slot.is_in_force] == [2], (
            "an older Forebay must refuse the log before it holds anything new"
        )
        before = log.state.path
        log.append(MessageBatch([b"new"], [START_US]))
        assert (log.state.path == before) == (version == 2), "records of two versions never share a segment"
    with CommitLog.open(base, clock=FakeClock(START_US)) as log:
        found = [row for batch in log.read(1) for row in as_read(batch)]
    assert found[:-1] == EXPECTED[version]["messages"]
    assert (found[-1]["seq"], found[-1]["payload"]) == (29, b"new".hex())


# --- today's code writes it ---------------------------------------------------------------------------------------


def batch_of(columns: dict[str, list[Any]]) -> MessageBatch:
    def texts(name: str) -> list[bytes] | None:
        return [value.encode() for value in columns[name]] if name in columns else None

    return MessageBatch(
        payloads=[bytes.fromhex(payload) for payload in columns["payload"]],
        created_us=columns["created_us"],
        partitions=texts("partition"),
        transaction_ids=texts("transaction_id"),
        trace_ids=texts("trace_id"),
        headers=texts("headers"),
        flags=columns.get("flags"),
    )


def encoded(version: int, path: str, told: dict[str, Any]) -> bytes:
    is_placed = version > 1
    place = block.checksum_of_place(block.checksum_of_path(path), told["position"]) if is_placed else block.NO_PLACE
    if "unreadable" in told:
        lost = told["first_seq"], told["last_lost_seq"], bytes.fromhex(told["unreadable"])
        return b"".join(block.sealed(block.encode_filler(*lost, is_placed=is_placed), place))
    tag, compress = bytes.fromhex(told["tag"]), told["is_snappy"]
    batches = [batch_of(told["columns"])]
    pieces = block.encode(batches, told["first_seq"], tag=tag, compress=compress, is_placed=is_placed)
    return b"".join(block.sealed(pieces, place))


@every_record
def test_todays_code_writes_the_same_messages_as_the_same_bytes(version: int, path: str, told: dict[str, Any]) -> None:
    data, golden = encoded(version, path, told), golden_bytes(version, path, told)
    if not told["has_crc"]:
        # Ours always sets bit 62; what it guards is the same.
        assert (data[:7], data[7] & ~0x40, data[8:-4]) == (golden[:7], golden[7], golden[8:])
    elif told["is_snappy"]:
        # Snappy may pack the same bytes in many ways. What is packed must be the same.
        assert data[8:36] == golden[8:36]
        assert data[7] & 0xC0 == golden[7] & 0xC0 == 0xC0
        assert unsnapped(data[36:-4]) == unsnapped(golden[36:-4])
    else:
        assert data == golden


@every_slot
def test_todays_code_writes_the_same_manifest_as_the_same_bytes(version: int, told: dict[str, Any]) -> None:
    entries = Entries()
    for entry in told["entries"]:
        entries = entries.with_entry(Entry(**entry))
    fields = {name: value for name, value in told.items() if name not in ("slot", "entries")}
    golden = (GOLDEN[version] / told["slot"]).read_bytes()
    assert manifest.encode(Manifest(**fields, entries=entries, version=version)) == golden


@every_version
def test_the_script_that_made_the_golden_log_still_makes_it_and_overwrites_nothing(
    tmp_path: Path, version: int
) -> None:
    command = [sys.executable, str(DATA / "make_golden.py"), str(version), str(tmp_path / "again")]
    subprocess.run(command, check=True, timeout=60)
    made = json.loads((tmp_path / "again" / "expected.json").read_text(encoding="ascii"))
    assert made["messages"] == EXPECTED[version]["messages"]
    assert verify(RealFilesystem(), tmp_path / "again" / "log").is_good
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode != 0
    assert "FileExistsError" in second.stderr


# --- a reader made from the page alone ----------------------------------------------------------------------------


def crc32c_by_the_page(data: bytes) -> int:
    """Castagnoli, bit by bit: polynomial 0x82F63B78 reflected, start and end inverted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unsnapped(packed: bytes) -> bytes:
    return bytes(cramjam.snappy.decompress_raw(packed))


def manifest_by_the_page(content: bytes) -> tuple[int, dict[str, Any]]:
    assert content[0:4] == b"QMFT"
    version, next_seq, file_count, checksum, generation = unpack_from("<IQIIQ", content, 4)
    assert zlib.crc32(content[:20] + bytes(4) + content[24:]) == checksum
    file_seq, write_pos, msg_count, path_length = unpack_from("<IQQH", content, 32)
    assert path_length == 32
    told = {"next_seq": next_seq, "generation": generation, "file_seq": file_seq, "write_pos": write_pos}
    told |= {"msg_count": msg_count, "path": content[54:86].decode("ascii")}
    entries = []
    assert len(content) == 86 + 58 * file_count
    for at in range(86, len(content), 58):
        start_seq, end_seq, size, path_length = unpack_from("<QQQH", content, at)
        assert path_length == 32
        path = content[at + 26 : at + 58].decode("ascii")
        entries.append({"start_seq": start_seq, "end_seq": end_seq, "size": size, "path": path})
    return version, told | {"entries": entries}


def records_by_the_page(path: str, data: bytes, version: int) -> Iterator[dict[str, Any]]:
    at = 0
    while at < len(data):
        (word,) = unpack_from("<Q", data, at)
        length, has_crc, is_snappy = word & (1 << 61) - 1, bool(word >> 62 & 1), bool(word >> 63)
        covers_place = bool(word >> 61 & 1)
        assert covers_place == (version > 1)
        first_seq, count, low, high = unpack_from("<QIQQ", data, at + 8)
        end = at + 8 + length
        if has_crc:
            (crc,) = unpack_from("<I", data, end)
            place = path.encode("ascii") + at.to_bytes(8, "little") if covers_place else b""
            assert crc == crc32c_by_the_page(place + data[at:end])
        body = data[at + 36 : end]
        told = {"position": at, "size": 8 + length + 4 * has_crc, "first_seq": first_seq, "count": count}
        told |= {"is_snappy": is_snappy, "has_crc": has_crc}
        if count == 0:
            assert low == first_seq
            yield told | {"last_lost_seq": high, "body": body.hex()}
        else:
            tag, columns = body_by_the_page(unsnapped(body) if is_snappy else body, count)
            assert (low, high) == (min(columns["created_us"]), max(columns["created_us"]))
            yield told | {"tag": tag.hex(), "columns": columns}
        at = end + 4 * has_crc


def body_by_the_page(body: bytes, count: int) -> tuple[bytes, dict[str, list[Any]]]:
    version, present, zero = unpack_from("<BBH", body)
    assert (version, zero) == (1, 0)
    at = 20
    columns: dict[str, list[Any]] = {}
    for bit, (name, code) in enumerate([("created_us", "q"), ("flags", "B")]):
        if present >> bit & 1:
            columns[name] = list(unpack_from(f"<{count}{code}", body, at))
            at = padded(body, at + count * calcsize(code))
    for bit, name in enumerate(["partition", "transaction_id", "trace_id", "headers", "payload"], 2):
        if present >> bit & 1:
            offsets = unpack_from(f"<{count + 1}i", body, at)
            at = padded(body, at + 4 * (count + 1))
            values = [body[at + start : at + stop] for start, stop in pairwise(offsets)]
            columns[name] = [value.hex() if name == "payload" else value.decode() for value in values]
            at = padded(body, at + offsets[-1])
    assert body[at:] == bytes(4), "four zero bytes end the body"
    return body[4:20], columns


def padded(body: bytes, at: int) -> int:
    """The next place that is a multiple of 8 from the record's start, which is 36 bytes before the body's."""
    end = at + -(36 + at) % 8
    assert body[at:end] == bytes(end - at), "padding is zero"
    return end


@every_slot
def test_each_field_of_a_manifest_is_where_the_page_says(version: int, told: dict[str, Any]) -> None:
    content = (GOLDEN[version] / told["slot"]).read_bytes()
    wanted = {name: value for name, value in told.items() if name != "slot"}
    assert manifest_by_the_page(content) == (version, wanted)


@every_version
def test_the_pointer_is_one_byte_that_names_a_slot(version: int) -> None:
    assert (GOLDEN[version] / "manifest.current").read_bytes() == b"\x02"


@every_version
@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_field_of_a_record_is_where_the_page_says(version: int, number: int) -> None:
    segment = EXPECTED[version]["segments"][number]
    content = (GOLDEN[version] / segment["path"]).read_bytes()
    found = list(records_by_the_page(segment["path"], content, version))
    for record, told in zip(found, segment["records"], strict=True):
        wanted = dict(told)
        del wanted["what"]
        if unreadable := wanted.pop("unreadable", None):
            wanted["body"] = bytes.fromhex(unreadable)[36:-4].hex()
        assert record == wanted


# --- the page itself ----------------------------------------------------------------------------------------------

PAGES = ["commit-log.md", "manifest.md"]
DUMP = re.compile(r"^```text (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ){0,15}[0-9a-f]{2})(?: {2,}\S.*)?")


def dumps() -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """Each hex dump of the pages: the golden file it shows, and its lines as (offset, bytes)."""
    for page in PAGES:
        text = (ROOT / "docs" / "internals" / page).read_text(encoding="utf-8")
        for name, body in DUMP.findall(text):
            lines = [LINE.fullmatch(line) for line in body.splitlines()]
            assert all(lines), f"{page}: a line of the dump of {name} is not `offset  bytes  words`"
            yield name, [(int(line[1], 16), bytes.fromhex(line[2])) for line in lines if line]


def test_every_hex_example_in_the_documentation_shows_the_golden_bytes() -> None:
    shown = set()
    for name, lines in dumps():
        data = (DATA / name if name.startswith("v2/") else GOLDEN[1] / name).read_bytes()
        expected_offset = lines[0][0]
        for offset, found in lines:
            assert offset == expected_offset, f"{name}: a gap before {offset:04x}"
            assert found == data[offset : offset + len(found)], f"{name} at {offset:04x}"
            expected_offset += len(found)
            shown |= {(name, at) for at in range(offset, expected_offset)}
    assert {("manifest.2", at) for at in range(202)} <= shown, "one manifest is shown whole"
    for version, path, told in RECORDS:
        if version > 1:
            continue  # of which one record is shown
        header = {(path, at) for at in range(told["position"], told["position"] + 36)}
        if told["what"] in ("every column", "columns absent", "Snappy", "a tag", "bit 62 clear", "a filler"):
            assert header <= shown, f"the header of {told['what']!r} is explained"
