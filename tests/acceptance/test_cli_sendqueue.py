"""`forebay sendqueue inspect|verify|salvage` on what a directory may turn out to be. Looking never changes a byte."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay.clock import SystemClock
from forebay.export.batch import CODEC, ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.filesystem import RealFilesystem
from forebay.otlp.kinds import Kind
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import FastQueue

GOLDEN = Path(__file__).parents[1] / "data" / "sendqueue"
SECOND_CHUNK = f"{0x46:016x}"
"""Of the golden queue `v2`: it holds one block, the second batch."""


def sendqueue(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "sendqueue", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def document(*words: str | Path, code: int = 0) -> Any:
    done = sendqueue(*words, "-o", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def golden(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / name, folder / name))


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def opened(directory: Path) -> FastQueue[ExportBatch]:
    limits = Limits(1000, 1 << 20)
    return FastQueue(directory, limits, CODEC, SystemClock(), RealFilesystem(), owner="a test")


def drained(directory: Path) -> tuple[list[str], int]:
    """The keys of all batches, and how much damage was met on the way."""
    queue = opened(directory)
    keys = []
    while (entry := queue.claim()) is not None:
        keys.append(entry.batch.key)
        queue.confirm(entry)
    damaged = queue.counts["damaged"]
    queue.close()
    return keys, damaged


def damage(directory: Path) -> None:
    """Flip a bit of the second batch."""
    chunk = directory / SECOND_CHUNK
    raw = bytearray(chunk.read_bytes())
    raw[100] ^= 1
    chunk.write_bytes(raw)


def test_a_sound_queue_is_shown_and_verified_and_not_touched(tmp_path: Path) -> None:
    directory = golden("v2", tmp_path)
    before = contents(directory)
    shown = sendqueue("inspect", directory)
    assert shown.returncode == 0
    assert "5 batches wait, 927" in shown.stdout
    assert [line.split()[0] for line in shown.stdout.splitlines()[3:]] == sorted(n for n in before if len(n) == 16)
    told = document("inspect", directory)
    assert (told["meta"]["entry_count"], told["open_in"], told["quarantined"]) == (5, None, [])
    assert [chunk["size"] for chunk in told["chunks"]] == [70, 241, 113, 197]
    verified = sendqueue("verify", directory)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "5 blocks, 5 of them wait" in verified.stdout
    assert "all good" in verified.stdout
    assert document("verify", directory)["ok"] is True
    assert contents(directory) == before


def test_damage_is_told_with_its_place_and_salvage_deletes_nothing(tmp_path: Path) -> None:
    directory = golden("v2", tmp_path)
    damage(directory)
    before = contents(directory)
    verified = sendqueue("verify", directory)
    assert verified.returncode == 1
    assert "bytes 70-311: its checksum is wrong; one batch lost" in verified.stdout
    told = document("verify", directory, code=1)
    assert told["ok"] is False
    assert [(one["start"], one["end"], one["is_one"]) for one in told["damages"]] == [(70, 311, True)]
    assert contents(directory) == before, "looking changed something"
    salvaged = document("salvage", directory)
    assert (salvaged["batches"], [one["start"] for one in salvaged["lost"]]) == (4, [70])
    after = contents(directory)
    assert {name: after[name] for name in before if name != "fastqueue.meta"} == {
        name: content for name, content in before.items() if name != "fastqueue.meta"
    }, "chunks are as they were"
    [kept] = [content for name, content in after.items() if name.startswith("quarantine/")]
    assert kept == before[SECOND_CHUNK]
    assert sendqueue("verify", directory).returncode == 0
    assert drained(directory) == (["key-0", "key-2", "key-3", "key-4"], 0)


def test_salvage_without_a_meta_file_keeps_what_the_originals_wrote(tmp_path: Path) -> None:
    """Their Snappy blocks have no CRC. A meta file that says all have one would make them unreadable."""
    directory = golden("v1", tmp_path)
    (directory / "fastqueue.meta").unlink()
    chunk = directory / f"{0:016x}"
    raw = chunk.read_bytes()
    block_bytes = 8 + int.from_bytes(raw[:8], "little") % (1 << 62)
    chunk.write_bytes(raw[:block_bytes])
    told = sendqueue("salvage", directory)
    assert told.returncode == 0, told.stderr
    assert "1 batches are kept" in told.stdout
    assert drained(directory) == (["key-0"], 0)


def test_an_open_queue_is_shown_with_its_owner_and_not_salvaged(tmp_path: Path) -> None:
    directory = golden("v2", tmp_path)
    queue = opened(directory)
    try:
        before = contents(directory)
        assert "open in a test" in sendqueue("inspect", directory).stdout
        assert document("inspect", directory)["open_in"] == "a test"
        assert sendqueue("verify", directory).returncode == 0
        refused = sendqueue("salvage", directory)
        assert refused.returncode == 1
        assert "the send queue is open in a test" in refused.stderr
        assert contents(directory) == before
    finally:
        queue.close()


def with_parts(folder: Path) -> Path:
    """A send queue with all that may be in its directory."""
    directory = golden("v2", folder)
    for part in ("failover", "first"):
        shutil.copytree(GOLDEN / "v2", directory / part)
    letters = DeadLetters(RealFilesystem(), directory, SystemClock())
    letters.add(ExportBatch(Kind.METRICS, b"body", 1, 1, "key"), SendFailed(ErrorClass.AUTH, "no"), 3)
    return directory


def test_the_queues_in_a_queue_and_its_dead_letters_are_shown_and_verified(tmp_path: Path) -> None:
    directory = with_parts(tmp_path)
    before = contents(directory)
    shown = sendqueue("inspect", directory).stdout
    assert shown.count("5 batches wait") == 3
    assert shown.index("first/") < shown.index("failover/") < shown.index("1 dead letters in dead/")
    told = document("inspect", directory)
    assert {name: part["meta"]["entry_count"] for name, part in told["parts"].items()} == {"first": 5, "failover": 5}
    assert (told["meta"]["entry_count"], told["dead_letters"]) == (5, 1)
    assert sendqueue("verify", directory).stdout.count("all good") == 3
    damage(directory / "failover")
    assert "failover: 4 blocks" in sendqueue("verify", directory).stdout
    told = document("verify", directory, code=1)
    assert (told["ok"], told["parts"]["failover"]["ok"], told["parts"]["first"]["ok"]) == (False, False, True)
    salvaged = document("salvage", directory)
    assert (salvaged["batches"], salvaged["parts"]["failover"]["batches"]) == (5, 4)
    assert document("verify", directory)["ok"] is True
    assert {name for name in before if name.startswith("dead/")} <= set(contents(directory))


def test_a_failover_queue_by_itself_is_a_send_queue(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    shutil.copytree(GOLDEN / "v2", directory / "failover")
    assert "5 batches wait" in sendqueue("inspect", directory).stdout
    assert document("inspect", directory)["parts"]["failover"]["meta"]["entry_count"] == 5
    assert document("verify", directory)["ok"] is True
    assert document("salvage", directory)["parts"]["failover"]["batches"] == 5
    assert not (directory / "fastqueue.meta").exists()


@pytest.mark.parametrize("command", ["inspect", "verify", "salvage"])
def test_what_is_no_send_queue_is_refused_and_left_alone(command: str, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    refused = sendqueue(command, foreign)
    assert refused.returncode == 1
    assert "holds no send queue" in refused.stderr
    assert contents(tmp_path) == {"foreign/notes.txt": b"mine"}
    missing = sendqueue(command, tmp_path / "missing")
    assert missing.returncode == 1
    assert "there is no such directory" in missing.stderr
    assert not (tmp_path / "missing").exists()
