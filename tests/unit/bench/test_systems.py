"""Peers and their loads: what is missing is told before anything is measured, and a load does what its name says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forebay.bench.broker import loads
from forebay.bench.broker.load_process import LoadDied, LoadProcess
from forebay.bench.broker.systems import check_clients, system_named
from forebay.errors import Permanent


def test_missing_client_is_told_at_once_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(Permanent, match=r"nats is not installed.*forebay\[bench\].*--without nats"):
        check_clients(without=())
    check_clients(without=("nats",))


async def test_push_load_counts_what_the_system_has_promised(tmp_path: Path) -> None:
    system = system_named("commitlog")
    await system.open(str(tmp_path), lanes=2)
    rate = await loads.push(system, lanes=2, batch=3, seconds=0.05)
    place = tmp_path / system.place
    await system.empty_place()
    assert rate > 0
    assert not place.exists(), "a place that was left is removed"
    await system.close()
    assert list(tmp_path.iterdir()) == []


def test_load_process_answers_round_after_round(tmp_path: Path) -> None:
    with LoadProcess("commitlog", str(tmp_path), lanes=1) as load:
        assert all(load.run("push", lanes=1, batch=1, seconds=0.01) > 0 for _ in range(2))
    assert list(tmp_path.iterdir()) == []


def test_load_process_tells_why_a_round_failed(tmp_path: Path) -> None:
    with (
        LoadProcess("commitlog", str(tmp_path), lanes=1) as load,
        pytest.raises(LoadDied, match="commitlog: NotImplementedError: nothing is popped"),
    ):
        load.run("take", lanes=1, batch=1, count=1)
