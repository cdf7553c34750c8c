"""What a store keeps about flows: whose they are, what was said of them, and what people want of them."""

from __future__ import annotations

import pytest

from forebay.broker.flow_rows import FlowRow
from forebay.broker.store import Store
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

QUIET_SECONDS = 15.0


async def report(store: Store, worker: str, text: bytes, *, is_released: bool = False) -> FlowRow:
    return await store.report_flow("clicks", worker, text, quiet_seconds=QUIET_SECONDS, is_released=is_released)


async def test_last_report_of_a_flow_is_kept_with_its_worker_and_time(store: Store, clock: FakeClock) -> None:
    assert await store.flows() == []
    await report(store, "one", b'{"rows":1}')
    clock.advance(1)
    kept = await report(store, "one", b'{"rows":2}')
    assert kept == FlowRow("clicks", "one", b'{"rows":2}', clock.now_us())
    await store.report_flow("a", "one", b"{}", quiet_seconds=QUIET_SECONDS)
    assert [row.name for row in await store.flows()] == ["a", "clicks"]


async def test_flow_has_one_worker_until_that_is_quiet_or_lets_go(store: Store, clock: FakeClock) -> None:
    await report(store, "one", b'{"rows":1}')
    clock.advance(QUIET_SECONDS - 1)
    assert (await report(store, "two", b'{"rows":0}')).worker == "one"
    assert (await store.flows())[0].report == b'{"rows":1}'
    clock.advance(2)
    assert (await report(store, "two", b'{"rows":0}')).worker == "two"
    assert (await report(store, "two", b'{"rows":3}', is_released=True)) == FlowRow(
        "clicks", "", b'{"rows":3}', clock.now_us()
    )
    assert (await report(store, "three", b"{}")).worker == "three"
    first = await store.report_flow("new", "one", b"{}", quiet_seconds=QUIET_SECONDS, is_released=True)
    assert first.worker == ""


async def test_pause_and_resume_are_kept_beside_the_reports(store: Store) -> None:
    assert await store.pause_flow("clicks", True) == FlowRow("clicks", is_paused=True)
    assert (await report(store, "one", b'{"rows":1}')).is_paused
    assert (await store.pause_flow("clicks", False)).resumes == 1
    resumed = await store.pause_flow("clicks", False)
    assert (resumed.is_paused, resumed.resumes, resumed.worker, resumed.report) == (False, 2, "one", b'{"rows":1}')


async def test_forgotten_flow_is_gone_with_its_pause(store: Store) -> None:
    await store.pause_flow("clicks", True)
    assert await store.forget_flow("clicks")
    assert not await store.forget_flow("clicks")
    assert await report(store, "one", b"{}") == FlowRow("clicks", "one", b"{}", (await store.flows())[0].updated_us)
