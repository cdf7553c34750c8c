"""A log on the real kernel while the disk fills up, answers with errors, or the process is killed inside a call.

The tests in `tests/recovery` do this with a simulated disk, at every call and with every outcome. Here the kernel has
its say: a tmpfs of 2 MiB in a mount namespace of its own, and strace, which makes the n-th call of a kind fail or kills
the process as it enters it. Slow all of it: it needs strace, and the right to mount.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.logs import content
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.inspection import verify
from forebay.filesystem import RealFilesystem
from forebay.model.message import MessageBatch

pytestmark = pytest.mark.slow

OPTIONS = LogOptions(segment_bytes=1500, roll_daily=False)
STEPS = 7
CALLS = ("pwritev2", "fdatasync", "fsync", "ftruncate", "rename", "unlink")
KILLS_OF_WRITING = 15
"""A kill costs a second: the first so many writes and syncs, and every call that makes something disappear."""

LIFE = f"""
import os, random, sys
from forebay.commitlog import CommitLog, LogOptions
from forebay.errors import ForebayError
from forebay.model.message import MessageBatch

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

try:
    log = CommitLog.open(sys.argv[1], LogOptions(segment_bytes={OPTIONS.segment_bytes}, roll_daily=False))
except ForebayError as error:
    say("refused", type(error).__name__)
    raise SystemExit from None
for step in range({STEPS}):
    payloads = [random.Random(2 * step + index).randbytes(250) for index in range(2)]
    try:
        if step == 5:
            log.truncate_before(5)
        first, last = log.append(MessageBatch(payloads, [step, step]))
        say("ack", step, len(log.state.entries), log.state.path)
    except ForebayError as error:
        say("failed", step, len(log.state.entries), log.state.path, type(error).__name__)
log.close()
say("closed")
"""
"""Two messages a step, two steps a segment, a truncation; after each step it says what became of it."""


class Call(NamedTuple):
    name: str
    number: int
    """The how manieth of its name it is, as strace counts."""
    path: str


class Step(NamedTuple):
    number: int
    entries: int
    path: str
    error: str | None


@dataclass
class Outcome:
    exit_code: int
    steps: list[Step] = field(default_factory=list)
    was_refused: bool = False
    was_closed: bool = False

    @property
    def acknowledged(self) -> list[int]:
        return [step.number for step in self.steps if step.error is None]


def payloads(step: int) -> list[bytes]:
    return [random.Random(2 * step + index).randbytes(250) for index in range(2)]


def live(base: Path, *options: str) -> Outcome:
    strace = ["strace", "-f", "-qq", "-o", str(base.with_suffix(".trace")), *options]
    if not any("signal=" in option for option in options):
        strace.append("--seccomp-bpf")  # stops at the calls named and at no other; strace 6.1 then sends no signals
    done = subprocess.run(
        [*strace, sys.executable, "-c", LIFE, str(base)], capture_output=True, text=True, timeout=120, check=False
    )
    outcome = Outcome(done.returncode)
    for line in done.stdout.splitlines():
        word, *rest = line.split()
        if word in ("ack", "failed"):
            number, entries, path, *error = rest
            outcome.steps.append(Step(int(number), int(entries), path, error[0] if error else None))
        outcome.was_refused |= word == "refused"
        outcome.was_closed |= word == "closed"
    assert "Traceback" not in done.stderr, done.stderr
    return outcome


def trace_of(base: Path) -> Iterator[Call]:
    """The calls of a life that was traced with paths, in order."""
    counts = dict.fromkeys(CALLS, 0)
    for line in base.with_suffix(".trace").read_text().splitlines():
        if match := re.match(r"\d+ +(\w+)\((?:\d+<([^>]*)>|\"([^\"]*)\")", line):
            name = match[1]
            counts[name] += 1
            yield Call(name, counts[name], match[2] or match[3])


@dataclass
class Undisturbed:
    """A life in which nothing goes wrong: what it asks of the kernel, and what becomes of it."""

    calls: list[Call]
    """Those within the log's directory, with paths relative to it."""
    outcome: Outcome

    def named(self, name: str) -> list[Call]:
        found = [call for call in self.calls if call.name == name]
        assert found, f"a life never calls {name}"
        return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    base = tmp_path_factory.mktemp("undisturbed") / "log"
    outcome = live(base, "-y", "-e", f"trace={','.join(CALLS)}")
    assert (outcome.exit_code, outcome.was_closed) == (0, True)
    check(base, outcome)
    calls = [call._replace(path=os.path.relpath(call.path, base)) for call in trace_of(base)]
    return Undisturbed([call for call in calls if not call.path.startswith("..")], outcome)


def check(base: Path, outcome: Outcome) -> None:
    """After reopening: all that was acknowledged, in order and once; nothing else, except what a kill cut short."""
    steps = outcome.acknowledged
    expected = [payload for step in steps for payload in payloads(step)]
    with CommitLog.open(base, OPTIONS) as log:
        found = content(log)
        assert [seq for seq, _ in found] == list(range(log.first_seq, log.next_seq)), "numbers have gaps or repeat"
        possible = [expected]
        if outcome.exit_code < 0:
            in_flight = outcome.steps[-1].number + 1 if outcome.steps else 0
            possible.append(expected + payloads(in_flight))
        assert 1 <= log.first_seq <= 5, "the truncation took more than it was asked to"
        assert [payload for _, payload in found] in [everything[log.first_seq - 1 :] for everything in possible]
        next_seq = log.next_seq
        assert log.append(MessageBatch([b"after"], [0])) == (next_seq, next_seq)
        assert content(log) == [*found, (next_seq, b"after")]
    assert verify(RealFilesystem(), base).is_good


def failing(call: Call) -> tuple[str, ...]:
    return "-e", f"trace={call.name}", "-e", f"inject={call.name}:error=EIO:when={call.number}"


def killing(call: Call) -> tuple[str, ...]:
    return "-e", f"inject={call.name}:signal=SIGKILL:when={call.number}"


# --- errors -------------------------------------------------------------------------------------------------------


def test_a_failed_write_fails_its_append_seals_the_segment_and_the_next_append_succeeds(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    writes = [call for call in undisturbed.named("pwritev2") if call.path.endswith(".data")]
    assert len(writes) == STEPS
    for hit, call in enumerate(writes):
        base = tmp_path / f"log{call.number}"
        outcome = live(base, *failing(call))
        assert (outcome.exit_code, outcome.was_closed) == (0, True)
        errors = [step.error for step in outcome.steps]
        assert errors == ["SyncFailed" if number == hit else None for number in range(STEPS)]
        usual, failed = undisturbed.outcome.steps[hit], outcome.steps[hit]
        held_messages = hit > 0 and outcome.steps[hit - 1].path == usual.path
        assert (failed.path != usual.path, failed.entries - usual.entries) == (held_messages, int(held_messages)), (
            "a segment with messages is sealed, one without is replaced by another file of the same name"
        )
        for following in outcome.steps[hit + 1 : hit + 2]:
            assert following.path == failed.path, "the next append goes into the new file"
        check(base, outcome)


@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
def test_a_failed_sync_of_a_manifest_or_a_directory_costs_at_most_the_step_it_hit(
    name: str, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    outcomes = []
    for call in undisturbed.named(name):
        base = tmp_path / f"log{call.number}"
        outcome = live(base, *failing(call))
        assert outcome.exit_code == 0
        assert outcome.was_refused or outcome.was_closed
        assert len(outcome.acknowledged) >= (0 if outcome.was_refused else STEPS - 1)
        check(base, outcome)
        outcomes.append(outcome)
    errors = {step.error for outcome in outcomes for step in outcome.steps}
    assert "AppendFailed" in errors, "a roll was hit"
    assert any(outcome.was_refused for outcome in outcomes), "the making of the log was hit"


def test_a_manifest_that_cannot_be_written_costs_at_most_the_step_it_hit(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    for call in [call for call in undisturbed.named("pwritev2") if call.path.startswith("manifest")]:
        base = tmp_path / f"log{call.number}"
        outcome = live(base, *failing(call))
        assert outcome.was_refused or len(outcome.acknowledged) >= STEPS - 1
        check(base, outcome)


# --- kills --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pwritev2", "fdatasync", "ftruncate", "unlink"])
def test_a_kill_inside_a_call_takes_nothing_that_was_acknowledged(
    name: str, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    writing = [call for call in undisturbed.calls if call.name in ("pwritev2", "fdatasync")][:KILLS_OF_WRITING]
    removing = [call for call in undisturbed.calls if call.name in ("ftruncate", "unlink")]
    chosen = [call for call in writing + removing if call.name == name]
    assert chosen
    for call in chosen:
        base = tmp_path / f"log{call.number}"
        outcome = live(base, "-e", f"trace={name}", *killing(call))
        assert outcome.exit_code == -signal.SIGKILL
        assert not outcome.was_closed
        check(base, outcome)


@pytest.mark.parametrize(
    ("name", "nth"),
    [("ftruncate", 1), ("ftruncate", 2), ("rename", 1), ("fdatasync", 1), ("fdatasync", 2)],
    ids=["cutting back", "making the spare", "renaming it", "syncing the slot", "syncing the pointer"],
)
def test_a_kill_while_a_bad_file_is_replaced_takes_nothing_that_was_acknowledged(
    name: str, nth: int, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The first write into the second segment fails; the process is killed as it takes another file of that name."""
    calls = undisturbed.calls
    first_write = next(call for call in calls if call.path.endswith("/0000000000000005.data"))
    before = [call for call in calls[: calls.index(first_write)] if call.name == name]
    call = Call(name, (before[-1].number if before else 0) + nth, "")
    base = tmp_path / "log"
    outcome = live(base, "-e", f"trace=pwritev2,{name}", *failing(first_write)[2:], *killing(call))
    assert outcome.exit_code == -signal.SIGKILL
    assert outcome.acknowledged == [0, 1]
    check(base, outcome)


# --- a full disk --------------------------------------------------------------------------------------------------

FILL = """
import json, os, sys
from forebay.commitlog import CommitLog, LogOptions
from forebay.errors import DiskFull
from forebay.model.message import MessageBatch

options = LogOptions(segment_bytes=256 << 10, roll_daily=False)
log = CommitLog.open(sys.argv[1], options)
kept = []

def append():
    payloads = [os.urandom(4000) for _ in range(4)]
    first, last = log.append(MessageBatch(payloads, [0] * 4))
    kept.extend(zip(range(first, last + 1), payloads))

def refused():
    try:
        append()
    except DiskFull as error:
        return str(error)

def read():
    return [row for batch in log.read(log.first_seq)
            for row in zip(batch.column("seq").to_pylist(), batch.column("payload").to_pylist())]

told = {}
for _ in range(1000):
    if refusal := refused():
        break
told["refusal"] = refusal
told["filled_bytes"] = sum(len(payload) for _, payload in kept)
told["refused_again"] = [bool(refused()) for _ in range(3)]
told["read_while_full"] = read() == kept
told["removed_up_to"] = log.truncate_before(len(kept) // 2)
for _ in range(20):
    append()
left = [row for row in kept if row[0] >= log.first_seq]
told["read_after"] = read() == left
told["failed_syncs"] = log.counters.failed_syncs
log.close()
log = CommitLog.open(sys.argv[1], options)
told["read_after_reopening"] = read() == left
told["is_clean"] = log.recovery.is_clean
log.close()
print(json.dumps(told))
"""


def test_a_full_tmpfs_refuses_appends_lets_reads_go_on_and_resumes_when_space_is_freed(tmp_path: Path) -> None:
    # Root may mount in a namespace of its own; anyone else is root in a user namespace of their own first.
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount_and_run = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$2" -c "$3" "$1/log"'
    command = [*namespace, "sh", "-c", mount_and_run, "sh", str(tmp_path), sys.executable, FILL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert re.search(
        r"disk full: .* failed, \d+ bytes are free\. Free space; writing resumes by itself", told["refusal"]
    )
    assert 1_500_000 < told["filled_bytes"] < 2 << 20
    assert told["refused_again"] == [True] * 3
    assert told["read_while_full"]
    assert told["removed_up_to"] > 1
    assert (told["read_after"], told["read_after_reopening"], told["is_clean"]) == (True, True, True)
    assert told["failed_syncs"] == 0, "a full disk seals no segment"
    assert list(tmp_path.iterdir()) == [], "the mount was private"
