"""The worst moments between a server and its PostgreSQL, 200 times: committed, and the answer cut off."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fixtures.buffer_steps import QUICK
from fixtures.tcp_proxy import TcpProxy
from forebay.broker.stores.postgres import PostgresStore
from forebay.clock import SystemClock
from forebay.filesystem import RealFilesystem
from forebay.ingest import Intake
from forebay.model.ids import minted_id
from forebay.model.push_run import PushRun, run_of_one

CUTS = 200
COMMITTED = rb"COMMIT\0|orders.*SELECT 1\0Z\0\0\0\x05I"
"""What the database says of a commit; and of a push in one trip, which has none: its row, and that no transaction is
open any more."""


def intake_on(store: PostgresStore, folder: Path, store_seconds: float = 20.0) -> Intake:
    quick = QUICK._replace(store_seconds=store_seconds)
    return Intake(store, RealFilesystem(), folder, SystemClock(), limits=quick, is_remote=True)


def message(number: int) -> PushRun:
    return run_of_one("orders", "p", b"%d" % number, minted_id(), is_minted=True)


async def stored(store: PostgresStore) -> list[int]:
    found = await store.read("orders", 1, 10_000)
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    return [int(one.payload) for one in found]


async def settled(intake: Intake) -> None:
    async with asyncio.timeout(60):
        while intake.drain_loop.failover.backlog.events or not intake.is_db_healthy:
            await asyncio.sleep(0.002)


@pytest.mark.slow
async def test_commit_without_an_answer_is_stored_once_and_in_order(postgres_database: str, tmp_path: Path) -> None:
    async with TcpProxy(postgres_database) as proxy:
        store = PostgresStore(proxy.url)
        intake = intake_on(store, tmp_path)
        await intake.start(lambda queue, count: None)
        pushed = 0
        while proxy.cuts < CUTS:
            # Sometimes a push's own commit is cut, in one trip or looked up, sometimes that of the drain.
            proxy.cut_after(COMMITTED)
            await intake.push([message(pushed)])
            pushed += 1
            if pushed % 3:
                await settled(intake)
        proxy.cut_after(b"never")
        await settled(intake)
        assert await stored(store) == list(range(pushed))
        figures = await intake.figures()
        assert figures.counts["failover"].duplicates > 0, "none of the cut commits had been made"
        await intake.stop()
        await store.close()


@pytest.mark.slow
async def test_black_hole_is_noticed_in_time_and_left_when_it_ends(postgres_database: str, tmp_path: Path) -> None:
    async with TcpProxy(postgres_database) as proxy:
        store = PostgresStore(proxy.url)
        intake = intake_on(store, tmp_path, store_seconds=1.5)
        await intake.start(lambda queue, count: None)
        await intake.push([message(0)])
        proxy.is_black_hole = True
        began = time.monotonic()
        [pushed] = await intake.push([message(1)])
        assert pushed.status == "buffered"
        assert time.monotonic() - began < 10, "a drain has 20 s; a push has 1.5"
        for number in range(2, 200):
            await intake.push([message(number)])
        proxy.is_black_hole = False
        await settled(intake)
        assert await stored(store) == list(range(200))
        await intake.stop()
        await store.close()
