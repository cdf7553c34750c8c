"""The figures can be asked for at any time, whatever is pushed or drained meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixtures.buffer_steps import AWAY, Shelf, message, started, until
from forebay.ingest.buffer_writes import BufferKind


class _Moving(Counter[Any]):
    """The event loop changes it whenever another thread looks through it."""

    def items(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        for number, pair in enumerate(super().items()):
            if threading.current_thread() is not threading.main_thread():
                super().__setitem__(("new", str(number)), 1)
            yield pair


async def test_figures_do_not_look_at_what_the_event_loop_changes(tmp_path: Path) -> None:
    store = Shelf()
    store.refuses = {"full"}
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1", "full"), message("2", "full", "q")])
        store.trouble = None
        drainer = intake.drain_loop.drainers[BufferKind.FAILOVER]
        await until(lambda: drainer.failed_events == 2)
        store.trouble = AWAY
        await intake.push([message("3", partition=str(n)) for n in range(5)])
        backlog = intake.drain_loop.failover.backlog
        backlog._places = _Moving(backlog._places)
        backlog._queues = _Moving(backlog._queues)
        figures = await intake.figures()
        assert (figures.pending, figures.failed, figures.partitions_fenced) == (5, 2, 7)
        assert figures.queues == {"full": 2, "orders": 5}
        assert [one.queue for one in figures.failed_files] == ["full"]


async def test_figures_are_of_one_moment(tmp_path: Path) -> None:
    """What is pushed while the directory is read is not in them, not even a part of it."""
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1")])
        is_reading, may_read = threading.Event(), threading.Event()
        read = intake.drain_loop.directory.failed.files

        def slow_read() -> Any:
            is_reading.set()
            may_read.wait(10)
            return read()

        intake.drain_loop.directory.failed.files = slow_read  # type: ignore[method-assign]
        asked = intake.drain_loop.figures()
        backlog = intake.drain_loop.failover.backlog

        async def push_meanwhile() -> None:
            await until(is_reading.is_set)
            backlog.add([("late", "p")])
            may_read.set()

        figures, _ = await asyncio.gather(asked, push_meanwhile())
        backlog.remove([("late", "p")])
        assert (figures.pending, figures.queues, figures.partitions_fenced) == (1, {"orders": 1}, 1)
