"""A process that stages two parts for two queues and commits them, and kills itself at one step.

Usage: stage_process.py DIRECTORY STEP. Lines on standard output: `staged ID` for each stage that was answered, and
`committed` if the commit was.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from fixtures.arrow_steps import ipc, rows_of
from forebay.broker.arrow.staged_rows import new_stage_id
from forebay.broker.bulk import StageName, StagesOf
from forebay.broker.stores.embedded import EmbeddedStore, committing, staging, store_thread
from forebay.commitlog import CommitLog

ROWS = 33_000
"""Of each part: more than one record of the log."""
PLACES: dict[str, tuple[Any, str]] = {
    "stage file": (staging.Stages, "write"),
    "stage row": (staging.Stages, "add"),
    "record": (CommitLog, "append_columns"),
    "commit": (committing.StageCommitter, "commit"),
    "files": (staging.Stages, "remove_files"),
    "answer": (store_thread, "_answer"),
}


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def kill_at(step: str) -> None:
    """`before record 2`, `after commit 1`: at a call of one of the places, counted from the commit on, or from 1."""
    when, *words, number = step.split()
    owner, name = PLACES[" ".join(words)]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def watched(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if when == "before" and calls == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*given, **named)
        if when == "after" and calls == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, watched)


async def main(directory: str, step: str) -> None:
    store = EmbeddedStore(directory)
    await store.open(lambda queue, count: None)
    is_in_commit = "stage" not in step
    if not is_in_commit:
        kill_at(step)
    stages = []
    for part, queue in enumerate(["left", "right"]):
        stage_id = new_stage_id()
        rows = rows_of(ipc({"payload": [f"{part}.{row}" for row in range(ROWS)]}), stage_id)
        await store.stage(queue, stage_id, StageName("spark", "1", str(part)), rows)
        stages.append(stage_id)
        tell(f"staged {stage_id}")
    if is_in_commit:
        kill_at(step)
    await store.commit_stages(StagesOf("spark", "1"), stages)
    tell("committed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
