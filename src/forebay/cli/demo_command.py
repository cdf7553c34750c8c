"""`forebay demo`: a writer is killed with -9 in the middle, and nothing that it was told is durable is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from forebay.assemble import log_options
from forebay.cli import output
from forebay.cli.demo_writer import click
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.settings_flags import with_settings
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.filesystem import RealFilesystem
from forebay.commitlog.inspection import verify
from forebay.config.load import Loaded
from forebay.errors import Permanent


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What happened, in numbers. `lost` is what was acknowledged and is not there."""

    asked_for: int
    acknowledged_before_kill: int
    kept_after_kill: int
    torn_bytes_set_aside: int
    acknowledged: int
    read_back: int
    lost: int
    wrong: int
    damaged_ranges: int
    write_messages_per_second: int
    read_messages_per_second: int
    reopen_milliseconds: float


@with_settings
def demo(
    loaded: Loaded,
    messages: Annotated[
        int, typer.Option("--messages", min=1000, max=100_000_000, help="Click events to write.")
    ] = 200_000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the log in data_dir/demo, to look at.")] = False,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """See Forebay work: write a log, kill the writer with -9 in the middle, reopen, verify, and count."""
    options = log_options(loaded.settings.log)
    if keep:
        directory = loaded.settings.data_dir / "demo"
        if directory.exists():
            raise Permanent(f"{directory} exists", remedy="Remove it, or choose another --data-dir")
        result = _run(directory, messages, options)
        output.tell(f"the log is in {directory}: try `forebay log inspect {directory}`")
    else:
        with tempfile.TemporaryDirectory(prefix="forebay-demo-") as scratch:
            result = _run(Path(scratch) / "log", messages, options)
    if output_format is Format.JSON:
        output.show_json({name: getattr(result, name) for name in DemoResult.__slots__})
    else:
        _show(result)
    if result.lost or result.wrong or result.damaged_ranges or result.read_back != messages:
        raise typer.Exit(ExitCode.REFUSED)


def _run(directory: Path, messages: int, options: LogOptions) -> DemoResult:
    output.tell(f"writing {messages:,} click events to a commit log, every answer durable")
    first = _write(directory, messages, options, stop_at=messages // 2, done=0)
    output.tell(f"killed the writer with -9 after it was told that {first.acknowledged:,} events are durable")
    opened = time.perf_counter()
    with CommitLog.open(directory, options) as log:
        reopen = time.perf_counter() - opened
        kept, torn = log.next_seq - 1, log.recovery.torn_bytes
    output.tell(f"reopened in {reopen * 1000:.1f} ms: {kept:,} events are there; a new writer does the rest")
    second = _write(directory, messages, options, stop_at=None, done=kept)
    output.tell("verifying every checksum, then reading everything back")
    checked = verify(RealFilesystem(), directory)
    reading = time.perf_counter()
    read_back, wrong = _read_back(directory)
    read_seconds = time.perf_counter() - reading
    return DemoResult(
        asked_for=messages,
        acknowledged_before_kill=first.acknowledged,
        kept_after_kill=kept,
        torn_bytes_set_aside=torn,
        acknowledged=second.acknowledged,
        read_back=read_back,
        lost=max(first.acknowledged - kept, 0) + max(second.acknowledged - read_back, 0),
        wrong=wrong,
        damaged_ranges=len(checked.damage),
        write_messages_per_second=round(messages / (first.seconds + second.seconds)),
        read_messages_per_second=round(read_back / read_seconds),
        reopen_milliseconds=round(reopen * 1000, 1),
    )


class _Written(NamedTuple):
    acknowledged: int
    """The last seq that the writer was told is durable."""
    seconds: float
    """From its first answer to its last."""


def _write(directory: Path, messages: int, options: LogOptions, *, stop_at: int | None, done: int) -> _Written:
    """Run a writer to its end, or kill it with -9 when it has been told that `stop_at` is durable."""
    command = [sys.executable, "-m", "forebay.cli.demo_writer", str(directory), str(messages)]
    command.append(json.dumps(asdict(options)))
    last = done
    started = time.perf_counter()
    with (
        output.progress("writing", messages) as advance,
        subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as writer,
    ):
        advance(done)
        for line in writer.stdout or ():
            if not line.endswith(b"\n"):
                break
            if last == done:
                started = time.perf_counter()
            advance(int(line) - last)
            last = int(line)
            if stop_at is not None and last >= stop_at:
                writer.send_signal(signal.SIGKILL)
                stop_at = None
    return _Written(last, time.perf_counter() - started)


def _read_back(directory: Path) -> tuple[int, int]:
    """How many events are there, and how many of them are not what was written under their number."""
    count = wrong = 0
    with CommitLog.open(directory) as log:
        for batch in log.read(log.first_seq):
            seqs, payloads = batch.column("seq").to_pylist(), batch.column("payload").to_pylist()
            wrong += sum(payload != click(seq) for seq, payload in zip(seqs, payloads, strict=True))
            count += len(seqs)
    return count, wrong


def _show(result: DemoResult) -> None:
    rows = [
        ("events asked for", f"{result.asked_for:,}"),
        ("acknowledged before kill -9", f"{result.acknowledged_before_kill:,}"),
        ("there after reopening", f"{result.kept_after_kill:,}"),
        ("torn bytes set aside", f"{result.torn_bytes_set_aside:,}"),
        ("reopened in", f"{result.reopen_milliseconds} ms"),
        ("acknowledged in all", f"{result.acknowledged:,}"),
        ("read back", f"{result.read_back:,}"),
        ("written, durable", f"{result.write_messages_per_second:,} messages/s"),
        ("read and compared", f"{result.read_messages_per_second:,} messages/s"),
        ("damaged", f"{result.damaged_ranges + result.wrong:,}"),
        ("lost", f"{result.lost:,}"),
    ]
    output.say()
    output.show_table(("what", "how much"), rows, right=("how much",))
