"""FastQueue's format, held to the byte by queues that were written once (`tests/data/sendqueue`) and never again."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from struct import unpack_from
from types import ModuleType
from typing import Any

import cramjam
import msgspec
import pytest
from crc32c import crc32c

from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch
from forebay.filesystem import RealFilesystem
from forebay.sendqueue.inspection import verify
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import FastQueue

DATA = Path(__file__).parents[2] / "data" / "sendqueue"
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="ascii"))
every_queue = pytest.mark.parametrize("name", sorted(EXPECTED))


def told(batch: ExportBatch) -> dict[str, Any]:
    head = {"kind": batch.kind.value, "items": batch.items, "key": batch.key}
    return {**head, "acceptedUs": batch.accepted_us, "body": batch.body.hex()}


@every_queue
def test_todays_code_reads_the_same_batches_in_the_same_order(name: str, tmp_path: Path) -> None:
    directory = tmp_path / name
    shutil.copytree(DATA / name, directory)
    queue = FastQueue(directory, Limits(1000, 1 << 20), CODEC, SystemClock(), RealFilesystem())
    assert queue.figures().batches == len(EXPECTED[name])
    found = []
    while (entry := queue.claim()) is not None:
        found.append(told(entry.batch))
        queue.confirm(entry)
    assert found == EXPECTED[name]
    assert queue.counts["damaged"] == 0
    queue.close()
    assert sorted(path.name for path in directory.iterdir()) == ["fastqueue.meta", "lock"], "consumed chunks are gone"


@every_queue
def test_verifying_finds_all_good_and_the_same_batches(name: str) -> None:
    found = verify(RealFilesystem(), DATA / name)
    assert found.is_good
    assert found.unread == len(EXPECTED[name])


def test_the_same_batches_are_written_as_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(DATA / "make_golden.py"), str(tmp_path / "again")]
    subprocess.run(command, check=True, timeout=120)
    assert contents(tmp_path / "again") == contents(DATA)
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "FileExistsError" in second.stderr


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files if path.suffix != ".py"}


def test_a_queue_that_goes_on_behind_the_originals_writes_blocks_with_a_crc(tmp_path: Path) -> None:
    directory = tmp_path / "v1"
    shutil.copytree(DATA / "v1", directory)
    their_end = (directory / f"{0:016x}").stat().st_size
    made = FastQueue(directory, Limits(1000, 1 << 20), CODEC, SystemClock(), RealFilesystem())
    made.push(golden_module().batches()[5])
    made.close()
    meta = json.loads((directory / "fastqueue.meta").read_text())
    assert (meta["version"], meta["entry_count"], meta["checked_from"]) == (2, 6, their_end)
    assert [one["key"] for one in read_by_the_page(directory)] == [f"key-{index}" for index in range(6)]


def golden_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_golden", DATA / "make_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- a reader made from docs/internals/fastqueue.md alone ---------------------------------------------------------


@every_queue
def test_a_reader_made_from_the_page_alone_reads_the_same(name: str) -> None:
    assert read_by_the_page(DATA / name) == EXPECTED[name]


def read_by_the_page(directory: Path) -> list[dict[str, Any]]:
    meta = json.loads((directory / "fastqueue.meta").read_text())
    found = []
    for chunk in sorted(path for path in directory.iterdir() if len(path.name) == 16):
        raw, first = chunk.read_bytes(), int(chunk.name, 16)
        place = 0
        while place < len(raw):
            (header,) = unpack_from("<Q", raw, place)
            end = place + 8 + (header & (1 << 62) - 1)
            data = raw[place + 8 : end]
            offset = first + place
            if header >> 62 & 1:
                (checksum,) = unpack_from("<I", raw, end)
                assert checksum == crc32c(raw[place:end], crc32c(offset.to_bytes(8, "little")))
                end += 4
            else:
                assert offset < meta.get("checked_from", meta["writer_offset"])
            if header >> 63:
                data = bytes(cramjam.snappy.decompress_raw(data))
            place = end
            is_confirmed = any(low <= offset < high for low, high in meta.get("confirmed", []))
            if offset >= meta["reader_offset"] and not is_confirmed:
                found.append(batch_by_the_page(data))
    return found


def batch_by_the_page(data: bytes) -> dict[str, Any]:
    (length,) = unpack_from("<I", data)
    version, kind, items, accepted_us, key = msgspec.msgpack.decode(data[4 : 4 + length])
    assert version == 1
    return {"kind": kind, "items": items, "key": key, "acceptedUs": accepted_us, "body": data[4 + length :].hex()}
