"""Stages whose files are damaged or gone: their commit is refused, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fixtures.arrow_steps import commit, payloads, stage
from fixtures.embedded_stores import opened
from fixtures.store_steps import push
from forebay.broker.bulk import StagesOf
from forebay.errors import StoreUnavailable


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
async def test_commit_of_a_damaged_stage_is_refused_alone(damage: str, tmp_path: Path) -> None:
    store = await opened(tmp_path / "data")
    await push(store, "a")
    staged = await stage(store, b"1", b"2")
    path = tmp_path / "data" / "stages" / f"{staged.stage_id}.arrow"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-300])
    refused, pushed = await asyncio.gather(commit(store, staged), push(store, "b"), return_exceptions=True)
    assert isinstance(refused, StoreUnavailable)
    assert not isinstance(pushed, BaseException)
    assert await payloads(store) == [b"a", b"b"]
    assert await store.abort_stages(StagesOf("spark", "1")) == 1
    assert (await commit(store, await stage(store, b"1"))).messages == 1
    await store.close()
