"""`forebay audit`, run as a person would run it, on the demo's own server."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from forebay.cli.demo.result import Audit


class _Queue(msgspec.Struct):
    queue: str
    stored: int
    differences: list[str]


class _Report(msgspec.Struct):
    balanced: bool
    queues: list[_Queue]


async def audited(url: str) -> Audit:
    """What it says of the server at that URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "forebay", "audit", "--url", url, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    try:
        report = msgspec.json.decode(stdout, type=_Report)
    except msgspec.DecodeError:
        return Audit(False, 0, 0, [stderr.decode(errors="replace").strip()])
    differences = [f"{one.queue}: {text}" for one in report.queues for text in one.differences]
    return Audit(report.balanced, len(report.queues), sum(one.stored for one in report.queues), differences)
