"""`kill -9` of a real process that writes a real log, again and again: nothing acknowledged is lost or reordered.

FOREBAY_TEST_KILLS says how often (100 by default); the log is one and the same from the first kill to the last.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.inspection import verify
from forebay.filesystem import RealFilesystem

KILLS = int(os.environ.get("FOREBAY_TEST_KILLS", "100"))
PARTS = 4
"""The kills are shared out to so many tests, each with a log of its own, so that they run side by side."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_acknowledged_is_lost_or_reordered_by_kill_9(part: int, tmp_path: Path) -> None:
    chance = random.Random(part)
    acknowledged = 0
    seen_seq = 0
    for _ in range(KILLS // PARTS + (part < KILLS % PARTS)):
        lines = write_until_killed(tmp_path / "log", threads=chance.choice([1, 3, 8]), answers=chance.randint(1, 120))
        acknowledged += len(lines)
        with CommitLog.open(tmp_path / "log", LogOptions(segment_bytes=200_000)) as log:
            seen_seq = check(log, lines, seen_seq)
    assert acknowledged > KILLS // PARTS
    assert verify(RealFilesystem(), tmp_path / "log").is_good


def write_until_killed(directory: Path, *, threads: int, answers: int) -> list[tuple[int, int, int, int]]:
    """Run the writer until it acknowledged so many appends, kill it, and return all that it acknowledged."""
    writer = Path(__file__).with_name("writer_process.py")
    command = [sys.executable, str(writer), str(directory), str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"open ")
        lines = [process.stdout.readline() for _ in range(answers)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [tuple(map(int, line.split())) for line in lines if line.endswith(b"\n")]  # type: ignore[misc]


def check(log: CommitLog, lines: list[tuple[int, int, int, int]], seen_seq: int) -> int:
    """Everything acknowledged is where it was said to be; every thread's messages are in the order it wrote them."""
    payloads: dict[int, list[bytes]] = {}
    last_number: dict[bytes, int] = {}
    expected_seq = seen_seq + 1
    for batch in log.read(expected_seq):
        seqs, values = batch.column("seq").to_pylist(), batch.column("payload").to_pylist()
        for seq, payload in zip(seqs, values, strict=True):
            assert seq == expected_seq, "a number is missing or comes twice"
            expected_seq += 1
            payloads[seq] = payload.split(b" ")[:3]
            name, position, _ = payloads[seq]
            assert int(position) == last_number.get(name, -1) + 1, "a thread's messages are out of order"
            last_number[name] = int(position)
    for first, last, thread, number in lines:
        for seq in range(first, last + 1):
            assert payloads[seq][:2] == [b"%d" % thread, b"%d" % (number + seq - first)], "acknowledged and not there"
    return expected_seq - 1
