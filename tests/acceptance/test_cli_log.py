"""`forebay log` as a user meets it: a started process on a real directory, its words, its JSON and its exit code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.logs import content, numbered
from forebay.commitlog import CommitLog

COMMANDS = ("inspect", "verify", "salvage")
WRITER = Path(__file__).parents[1] / "recovery" / "writer_process.py"
SEALED = ((1, 2), (3, 5), (6, 6))
"""Seq ranges of the sealed segment's records; an active segment with one record, 7-8, follows."""
EVERYTHING = [(seq, b"%d" % seq) for seq in range(1, 9)]

HOLD_OPEN = """
import sys
from forebay.commitlog import CommitLog
with CommitLog.open(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


@dataclass
class MadeLog:
    base: Path
    sealed: str
    """Path of the sealed segment relative to the base."""
    active: str
    ends: list[int]
    """Where each record of the sealed segment ends."""
    active_size: int

    @property
    def sealed_size(self) -> int:
        return self.ends[-1]


@pytest.fixture
def log(tmp_path: Path) -> MadeLog:
    """A closed log: a sealed segment of three records and an active one."""
    base = tmp_path / "log"
    with CommitLog.open(base) as opened:
        ends = []
        for first, last in SEALED:
            opened.append(numbered(first, last - first + 1))
            ends.append(opened.state.position)
        sealed = opened.state.path
        opened.roll()
        opened.append(numbered(7, 2))
        return MadeLog(base, sealed, opened.state.path, ends, opened.state.position)


def forebay(*words: str | Path, through: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command. Whatever happens, no user sees a traceback."""
    done = typed(*words, through=through)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode in (0, 1)
    return done


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """What was said on a refusal: exit code 1, the error on stderr, nothing on stdout."""
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("forebay: error: ")
    return done.stderr


def hashes(base: Path) -> dict[str, str]:
    return {
        path.relative_to(base).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in base.rglob("*")
        if path.is_file()
    }


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def slot_in_force(base: Path) -> Path:
    return base / f"manifest.{(base / 'manifest.current').read_bytes()[0]}"


def read_everything(base: Path) -> list[tuple[int, bytes]]:
    with CommitLog.open(base) as opened:
        return content(opened)


@contextmanager
def open_elsewhere(base: Path) -> Iterator[int]:
    """Another process has the log open; yields its id."""
    command = [sys.executable, "-c", HOLD_OPEN, str(base)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.communicate()
    assert process.returncode == 0


@contextmanager
def written_elsewhere(base: Path) -> Iterator[threading.Event]:
    """Another process appends and rolls as fast as it can. The event is set anew by every append."""
    answered = threading.Event()
    with subprocess.Popen([sys.executable, str(WRITER), str(base), "2"], stdout=subprocess.PIPE) as process:
        stdout = process.stdout
        assert stdout is not None

        def follow() -> None:
            for _ in stdout:
                answered.set()

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            yield answered
        finally:
            process.kill()
            follower.join()


# --- inspect ------------------------------------------------------------------------------------------------------


def test_inspect_shows_slots_and_segments_as_tables(log: MadeLog) -> None:
    done = forebay("log", "inspect", log.base)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    assert lines[0] == [f"{log.base}: not open"]
    assert ["slot", "state", "generation", "next seq", "sealed segments", "active segment", "write pos"] in lines
    assert ["manifest.1", "in force", "3", "9", "1", log.active, str(log.active_size)] in lines
    assert ["manifest.2", "other", "2", "7", "1", log.active, "0"] in lines
    sizes = [str(log.sealed_size)] * 2, [str(log.active_size)] * 2
    assert [log.sealed, "sealed", "1", "6", "6", *sizes[0]] in lines
    assert [log.active, "active", "7", "8", "2", *sizes[1]] in lines


def test_inspect_gives_everything_as_json(log: MadeLog) -> None:
    done = forebay("log", "inspect", log.base, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    slot = {"file_count": 1, "file_seq": 2, "path": log.active, "fault": None}
    in_force = {"name": "manifest.1", "in_force": True, "generation": 3, "next_seq": 9, "msg_count": 2}
    other = {"name": "manifest.2", "in_force": False, "generation": 2, "next_seq": 7, "msg_count": 0}
    assert document(done) == {
        "directory": str(log.base),
        "owner": None,
        "fault": None,
        "next_seq": 9,
        "slots": [slot | in_force | {"write_pos": log.active_size}, slot | other | {"write_pos": 0}],
        "segments": [
            {
                "path": log.sealed,
                "state": "sealed",
                "first_seq": 1,
                "last_seq": 6,
                "size": log.sealed_size,
                "size_on_disk": log.sealed_size,
            },
            {
                "path": log.active,
                "state": "active",
                "first_seq": 7,
                "last_seq": 8,
                "size": log.active_size,
                "size_on_disk": log.active_size,
            },
        ],
        "unlisted": [],
        "quarantined": [],
        "foreign": [],
    }


def test_inspect_changes_nothing(log: MadeLog) -> None:
    before = hashes(log.base)
    forebay("log", "inspect", log.base)
    assert hashes(log.base) == before


def test_inspect_names_the_process_that_has_the_log_open(log: MadeLog) -> None:
    with open_elsewhere(log.base) as pid:
        shown = forebay("log", "inspect", log.base)
        told = document(forebay("log", "inspect", log.base, "-o", "json"))
    assert re.search(rf": open in process {pid} \(.*\) on \S+ since 20\d\d-", shown.stdout)
    assert told["owner"].startswith(f"process {pid} (")
    assert document(forebay("log", "inspect", log.base, "-o", "json"))["owner"] is None


def test_inspect_tells_what_is_wrong_with_a_manifest_and_what_is_there_all_the_same(log: MadeLog) -> None:
    damaged = slot_in_force(log.base)
    flip(damaged, 60)
    shown = forebay("log", "inspect", log.base)
    told = document(forebay("log", "inspect", log.base, "-o", "json"))
    assert shown.returncode == 0
    assert "cannot be opened: " in shown.stdout
    assert "not in the manifest" in shown.stdout
    assert f"{damaged}: manifest corrupted: checksum" in told["fault"]
    assert f"forebay log salvage {log.base}" in told["fault"]
    faults = {slot["name"]: slot["fault"] is not None for slot in told["slots"]}
    assert faults == {"manifest.1": True, "manifest.2": False}
    assert not any(slot["in_force"] for slot in told["slots"])
    assert told["unlisted"] == [
        {"path": log.sealed, "size": log.sealed_size},
        {"path": log.active, "size": log.active_size},
    ]


def test_inspect_shows_a_missing_segment(log: MadeLog) -> None:
    (log.base / log.sealed).unlink()
    shown = forebay("log", "inspect", log.base)
    assert (shown.returncode, "MISSING" in shown.stdout) == (0, True)
    told = document(forebay("log", "inspect", log.base, "-o", "json"))
    assert [view["size_on_disk"] for view in told["segments"]] == [None, log.active_size]


def test_inspect_lists_foreign_files_whatever_bytes_their_names_have(log: MadeLog) -> None:
    names = [b"caf\xe9", b"\xff\xfe.data", b"line\nbreak", b"\x1b[31mred", "水.txt".encode()]
    for name in names:
        (log.base / os.fsdecode(name)).touch()
    shown = forebay("log", "inspect", log.base)
    assert shown.returncode == 0
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert {r"caf\udce9", r"\udcff\udcfe.data", r"line\nbreak", r"\x1b[31mred", "水.txt"} <= set(lines)
    told = document(forebay("log", "inspect", log.base, "-o", "json"))
    assert sorted(os.fsencode(name) for name in told["foreign"]) == sorted(names)


def test_a_directory_whose_name_is_not_utf8_is_inspected_verified_and_salvaged(tmp_path: Path) -> None:
    base = tmp_path / os.fsdecode(b"na\xefve \xff")
    with CommitLog.open(base) as opened:
        opened.append(numbered(1, 2))
    for command in COMMANDS:
        done = forebay("log", command, base)
        assert (done.returncode, done.stderr) == (0, "")
        assert r"na\udcefve \udcff: " in done.stdout
    assert os.fsencode(document(forebay("log", "inspect", base, "-o", "json"))["directory"]) == os.fsencode(base)


# --- verify -------------------------------------------------------------------------------------------------------


def test_verify_of_a_good_log_says_what_was_checked(log: MadeLog) -> None:
    size = log.sealed_size + log.active_size
    done = forebay("log", "verify", log.base)
    said = f"{log.base}: good; 8 messages in 4 records, 2 segments, {size:,} bytes checked\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    told = document(forebay("log", "verify", log.base, "-o", "json"))
    counts = {"segments": 2, "records": 4, "messages": 8, "size": size}
    assert told == counts | {"ok": True, "damage": [], "notes": [], "owner": None}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_verify_tells_damage_to_the_byte_and_to_the_message(log: MadeLog, number: int) -> None:
    start, end = [0, *log.ends][number], log.ends[number]
    first, last = SEALED[number]
    flip(log.base / log.sealed, end - 20)
    done = forebay("log", "verify", log.base)
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert ["damaged segment", "position", "bytes", "messages lost", "reason"] in lines
    assert [log.sealed, str(start), str(end - start), f"{first}-{last}", "CRC does not match"] in lines
    assert f"{log.base}: 1 damaged ranges; {8 - (last - first + 1)} messages in 3 records" in done.stdout
    as_json = forebay("log", "verify", log.base, "-o", "json")
    assert as_json.returncode == 1
    told = document(as_json)
    damage = {"segment": log.sealed, "position": start, "size": end - start, "first_seq": first, "last_seq": last}
    assert told["ok"] is False
    assert told["damage"] == [damage | {"reason": "CRC does not match"}]


def test_verify_tells_a_missing_segment(log: MadeLog) -> None:
    (log.base / log.sealed).unlink()
    done = forebay("log", "verify", log.base, "-o", "json")
    assert done.returncode == 1
    damage = {"segment": log.sealed, "position": 0, "size": log.sealed_size, "first_seq": 1, "last_seq": 6}
    assert document(done)["damage"] == [damage | {"reason": "the file is missing"}]


def test_looking_at_a_log_that_is_being_written_finds_no_damage(tmp_path: Path) -> None:
    base = tmp_path / "log"
    with written_elsewhere(base) as answered:
        for _ in range(2):
            answered.clear()
            assert answered.wait(60), "the writer goes on while it is looked at"
            done = forebay("log", "verify", base, "-o", "json")
            assert (done.returncode, document(done)["damage"]) == (0, [])
            seen = document(forebay("log", "inspect", base, "-o", "json"))
            assert seen["fault"] is None
            assert seen["owner"].startswith("process ")
            assert all(view["size_on_disk"] >= view["size"] for view in seen["segments"])


def test_verify_takes_half_a_write_behind_the_manifest_for_no_damage(log: MadeLog) -> None:
    active = log.base / log.active
    with open_elsewhere(log.base):
        half = active.read_bytes()[: log.active_size // 2]
        active.write_bytes(active.read_bytes() + half)
        done = forebay("log", "verify", log.base, "-o", "json")
    behind = (
        f"{log.active}: {len(half.rstrip(bytes(1)))} bytes from {log.active_size} on, "
        "being written now, or torn by a crash"
    )
    assert (done.returncode, document(done)["damage"], document(done)["notes"]) == (0, [], [behind])


def test_verify_names_the_repair_of_a_log_that_does_not_open(log: MadeLog) -> None:
    (log.base / "manifest.current").unlink()
    said = refused(forebay("log", "verify", log.base))
    assert "manifest.current: manifest not found, although " in said
    assert f"Run `forebay log salvage {log.base}`; it deletes nothing" in said


# --- salvage ------------------------------------------------------------------------------------------------------


def salvaged(log: MadeLog) -> dict[str, Any]:
    """Salvage, then hold the log to what salvage promises: it is good, and a second salvage finds nothing to do."""
    done = forebay("log", "salvage", log.base, "-o", "json")
    assert done.returncode == 0, done.stderr
    checked = document(forebay("log", "verify", log.base, "-o", "json"))
    assert checked["ok"] is True
    told = document(done)
    assert told["changed"] is True
    assert all((log.base / name).is_file() for name in told["quarantined"])
    assert document(forebay("log", "salvage", log.base, "-o", "json"))["changed"] is False
    return told


def test_salvage_of_a_good_log_changes_nothing(log: MadeLog) -> None:
    before = hashes(log.base)
    done = forebay("log", "salvage", log.base)
    said = f"{log.base}: nothing to mend; 8 messages kept, first seq 1, next seq 9\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert hashes(log.base) == before


@pytest.mark.parametrize("number", [0, 1, 2])
def test_salvage_of_a_flipped_byte_loses_its_record_and_keeps_its_bytes(log: MadeLog, number: int) -> None:
    start, end = [0, *log.ends][number], log.ends[number]
    first, last = SEALED[number]
    flip(log.base / log.sealed, start + 50)
    original = (log.base / log.sealed).read_bytes()[start:end]
    told = salvaged(log)
    damage = {"segment": log.sealed, "position": start, "size": end - start, "first_seq": first, "last_seq": last}
    assert told["damage"] == [damage | {"reason": "CRC does not match"}]
    assert original in [(log.base / name).read_bytes() for name in told["quarantined"]]
    assert read_everything(log.base) == [row for row in EVERYTHING if not first <= row[0] <= last]


def test_salvage_says_in_words_what_it_did(log: MadeLog) -> None:
    flip(log.base / log.sealed, log.ends[0] + 50)
    done = forebay("log", "salvage", log.base)
    assert done.returncode == 0
    assert "3-5" in done.stdout
    assert re.search(r"^kept aside: quarantine/\S+\.unreadable$", done.stdout, re.MULTILINE)
    last_line = done.stdout.splitlines()[-1]
    assert last_line == (f"{log.base}: mended from the manifest in force; 5 messages kept, first seq 1, next seq 9")


def test_salvage_finds_the_manifest_when_the_pointer_is_lost(log: MadeLog) -> None:
    (log.base / "manifest.current").unlink()
    told = salvaged(log)
    assert (told["manifest_from"], told["damage"]) == ("the other slot, manifest.1", [])
    assert read_everything(log.base) == EVERYTHING


@pytest.mark.parametrize("how", ["unlinked", "emptied", "overwritten"])
def test_salvage_rebuilds_the_manifest_when_both_slots_are_lost(log: MadeLog, how: str) -> None:
    for name in ("manifest.1", "manifest.2"):
        if how == "unlinked":
            (log.base / name).unlink()
        else:
            (log.base / name).write_bytes(b"" if how == "emptied" else os.urandom(300))
    told = salvaged(log)
    assert (told["manifest_from"], told["damage"]) == ("the names of 2 segments", [])
    assert read_everything(log.base) == EVERYTHING


def test_salvage_of_a_damaged_slot_uses_the_other_and_misses_no_message(log: MadeLog) -> None:
    flip(slot_in_force(log.base), 60)
    told = salvaged(log)
    assert (told["manifest_from"], told["damage"]) == ("the other slot, manifest.2", [])
    assert read_everything(log.base) == EVERYTHING


def test_salvage_goes_on_without_a_missing_segment_and_tells_its_messages(log: MadeLog) -> None:
    (log.base / log.sealed).unlink()
    told = salvaged(log)
    assert [(d["first_seq"], d["last_seq"], d["reason"]) for d in told["damage"]] == [(1, 6, "the file is missing")]
    assert read_everything(log.base) == EVERYTHING[6:]


def test_salvage_never_gives_a_number_out_twice(log: MadeLog) -> None:
    (log.base / log.active).unlink()
    told = salvaged(log)
    assert told["next_seq"] == 9
    with CommitLog.open(log.base) as opened:
        assert opened.append(numbered(9, 1)) == (9, 9)
        assert content(opened) == [*EVERYTHING[:6], (9, b"9")]


def test_salvage_is_refused_while_the_log_is_open_and_touches_nothing(log: MadeLog) -> None:
    flip(log.base / log.sealed, 50)
    with open_elsewhere(log.base) as pid:
        before = hashes(log.base)
        said = refused(forebay("log", "salvage", log.base))
        assert hashes(log.base) == before
    assert f"{log.base}: the log is open in process {pid} (" in said
    assert "Stop that process" in said


# --- what is no log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_log_is_refused_by_name_and_left_alone(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a log")
    (tmp_path / "empty").mkdir()
    for name, complaint in (
        ("file", "Not a directory"),
        ("none", "no such directory"),
        ("empty", "no commit log is here: neither a manifest nor a segment"),
        ("file/below", "no such directory"),
    ):
        said = refused(forebay("log", command, tmp_path / name, "-o", "json"))
        assert said.splitlines()[0] == f"forebay: error: {tmp_path / name}: {complaint}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", ["directory", "segments", "manifest"])
def test_a_log_that_may_not_be_read_is_refused_by_name(command: str, closed: str, log: MadeLog) -> None:
    places = {"directory": log.base, "segments": log.base / log.sealed[:10], "manifest": slot_in_force(log.base)}
    place = places[closed]
    before = hashes(log.base)
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        said = refused(forebay("log", command, log.base, through=without_privileges()))
    finally:
        place.chmod(mode)
    assert "Permission denied" in said
    assert str(log.base) in said.splitlines()[0]
    assert f"must be able to read and write everything in {log.base}" in said
    assert hashes(log.base).items() >= before.items()


def without_privileges() -> tuple[str, ...]:
    """Modes do not bind root; without two of its privileges they do, and everything else is as before."""
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def test_verify_counts_what_a_running_server_has_written_and_says_that_it_is_open(tmp_path: Path) -> None:
    base = tmp_path / "log"
    with CommitLog.open(base) as opened:
        opened.append(numbered(1, 3))
        found = document(forebay("log", "verify", base, "-o", "json"))
        assert (found["ok"], found["messages"], found["records"]) == (True, 3, 1)
        assert found["owner"].startswith(f"process {os.getpid()} ")
        assert f"good so far, open in process {os.getpid()} " in forebay("log", "verify", base).stdout
