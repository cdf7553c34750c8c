"""A started server whose Valkey dies, forgets, is full, freezes or cannot be reached: leases go on at once, and the
warm tier is rebuilt."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import valkey

from fixtures.beside import beside
from fixtures.running_stores import fresh
from fixtures.tcp_proxy import TcpProxy
from fixtures.waiting import wait_until
from forebay.client import Client, ParcelLease, ParcelOutcome
from forebay.dispatch.warm import WarmUnavailable
from forebay.dispatch.warms.valkey import ValkeyWarm
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import ValkeyServer

PARCELS = 60
WORKERS = 4
LEASE_SECONDS_MAX = 5.0
REBUILT_SECONDS_MAX = 10.0
FROZEN_SECONDS = 30.0


@pytest.fixture
def proxy(valkey_server: ValkeyServer) -> Iterator[TcpProxy]:
    """What the server believes is Valkey."""
    with beside(TcpProxy(valkey_server.url)) as found:
        yield found


@pytest.fixture
def server(proxy: TcpProxy, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", arguments=["--warm", proxy.url]) as running:
        yield running


class Flow:
    def __init__(self, client: Client) -> None:
        self.client, self.name, self.action_class = client, fresh("flow"), fresh("class")
        self.queue = fresh("in")
        self.pushed = 0
        source = {"queue": self.queue, "parcelMessages": 1, "parcelWaitSeconds": 0.05}
        steps = [{"action": "a", "actionClass": self.action_class}]
        client.define_flow(self.name, {"source": source, "steps": steps})
        self.push(PARCELS)
        wait_until(lambda: self.queued() == PARCELS)

    def push(self, parcels: int) -> None:
        self.client.push_many(self.queue, range(parcels))
        self.pushed += parcels

    def queued(self) -> int:
        return int(self.client.flow(self.name)["queued"])

    def lease(self, parcels: int) -> ParcelLease:
        began = time.monotonic()
        lease = self.client.lease("w", [self.action_class], parcels=parcels, wait=LEASE_SECONDS_MAX)
        assert lease is not None, "no parcel while the warm tier was away"
        assert time.monotonic() - began < LEASE_SECONDS_MAX
        return lease

    def complete(self, lease: ParcelLease) -> list[str]:
        outcomes = [ParcelOutcome(did=parcel.did, state="COMPLETE") for parcel in lease.parcels]
        self.client.complete(lease, outcomes)
        return [outcome.did for outcome in outcomes]


def warm_size(url: str, action_class: str) -> int:
    """How many entries Valkey itself has; -1 while it does not answer."""

    async def ask() -> int:
        tier = ValkeyWarm(url)
        try:
            return (await tier.sizes()).get(action_class, 0)
        except WarmUnavailable:
            return -1
        finally:
            await tier.close()

    return asyncio.run(ask())


Strike = Callable[[ValkeyServer, TcpProxy, Flow], None]
"""Something that is over at once, while parcels of the flow are being claimed."""
Hurt = Callable[[ValkeyServer, TcpProxy], AbstractContextManager[None]]


@contextmanager
def _killed_and_empty(server: ValkeyServer, _: TcpProxy) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextmanager
def _flushed(server: ValkeyServer, _: TcpProxy) -> Iterator[None]:
    with valkey.Valkey.from_url(server.url) as connection:
        connection.flushall()
    yield


@contextmanager
def _frozen(server: ValkeyServer, _: TcpProxy) -> Iterator[None]:
    server.pause()
    yield
    time.sleep(FROZEN_SECONDS)
    server.resume()


@contextmanager
def _unreachable(_: ValkeyServer, proxy: TcpProxy) -> Iterator[None]:
    """Connections stay open, and nothing comes through them."""
    proxy.is_black_hole = True
    yield
    proxy.is_black_hole = False


@contextmanager
def _full(server: ValkeyServer, policy: str) -> Iterator[None]:
    with valkey.Valkey.from_url(server.url) as connection:
        connection.config_resetstat()
        connection.config_set("maxmemory-policy", policy)
        connection.config_set("maxmemory", 1)
        yield
        refused, evicted = connection.info("errorstats"), connection.info("stats")["evicted_keys"]
        assert evicted > 0 if policy == "allkeys-lru" else "errorstat_OOM" in refused
        connection.config_set("maxmemory", 0)


def _out_of_memory(server: ValkeyServer, _: TcpProxy) -> AbstractContextManager[None]:
    return _full(server, "noeviction")


def _evicting(server: ValkeyServer, _: TcpProxy) -> AbstractContextManager[None]:
    return _full(server, "allkeys-lru")


@pytest.mark.parametrize(
    "hurt",
    [
        _killed_and_empty,
        _flushed,
        _out_of_memory,
        _evicting,
        _unreachable,
        pytest.param(_frozen, marks=pytest.mark.slow),
    ],
)
def test_every_parcel_is_leased_once_while_valkey_is_hurt_and_the_warm_tier_is_rebuilt(
    client: Client, valkey_server: ValkeyServer, proxy: TcpProxy, hurt: Hurt
) -> None:
    flow = Flow(client)
    wait_until(lambda: warm_size(valkey_server.url, flow.action_class) == PARCELS)
    done = flow.complete(flow.lease(10))
    with hurt(valkey_server, proxy):
        held = flow.lease(10)
        done += flow.complete(flow.lease(10)) + flow.complete(held)
        flow.push(PARCELS)  # what comes meanwhile has to find its way as well
        wait_until(lambda: flow.queued() == 2 * PARCELS - len(done))
    done += flow.complete(flow.lease(10))
    wait_until(lambda: warm_size(valkey_server.url, flow.action_class) == flow.queued(), REBUILT_SECONDS_MAX)
    while len(done) < 2 * PARCELS:
        done += flow.complete(flow.lease(10))
    assert len(set(done)) == len(done) == 2 * PARCELS
    assert {parcel["state"] for parcel in client.parcels(flow=flow.name, limit=1000)} == {"COMPLETE"}


def _flush(server: ValkeyServer, _: TcpProxy, __: Flow) -> None:
    with valkey.Valkey.from_url(server.url) as connection:
        connection.flushall()


def _cut(_: ValkeyServer, proxy: TcpProxy, flow: Flow) -> None:
    """Valkey has taken parcels out of its line; the answer that names them does not arrive."""
    before = proxy.cuts
    proxy.cut_after(flow.name.encode())

    def is_cut() -> bool:
        flow.push(1)  # so that there is something to claim
        return proxy.cuts > before

    wait_until(is_cut)


@pytest.mark.parametrize(("strike", "strikes"), [(_flush, 8), (_cut, 3)])
def test_parcels_are_leased_once_when_claims_under_way_are_flushed_or_cut_off(
    client: Client, server: RunningServer, valkey_server: ValkeyServer, proxy: TcpProxy, strike: Strike, strikes: int
) -> None:
    flow = Flow(client)
    done: list[str] = []
    is_over = threading.Event()

    def work() -> None:
        with Client(server.url) as own:
            while not is_over.is_set():
                if (lease := own.lease("w", [flow.action_class], parcels=2, wait=0.2)) is not None:
                    own.complete(lease, [ParcelOutcome(did=parcel.did, state="COMPLETE") for parcel in lease.parcels])
                    done.extend(parcel.did for parcel in lease.parcels)

    with ThreadPoolExecutor(WORKERS) as pool:
        working = [pool.submit(work) for _ in range(WORKERS)]
        try:
            for _ in range(strikes):
                flow.push(PARCELS)
                seen = len(done)
                wait_until(lambda seen=seen: len(done) > seen)  # type: ignore[misc]
                strike(valkey_server, proxy, flow)
            wait_until(lambda: len(done) >= flow.pushed)
        finally:
            is_over.set()
    for worker in working:
        worker.result()
    assert len(set(done)) == len(done) == flow.pushed
    parcels = client.parcels(flow=flow.name, limit=1000)
    assert [parcel["state"] for parcel in parcels] == ["COMPLETE"] * len(done)


def test_leases_go_on_while_valkey_is_dead_and_a_server_starts_without_it(
    client: Client, server: RunningServer, valkey_server: ValkeyServer
) -> None:
    flow = Flow(client)
    valkey_server.kill()
    held = flow.lease(5)
    done = flow.complete(flow.lease(10)) + flow.complete(held)
    server.kill()
    server.start()
    while len(done) < PARCELS:
        done += flow.complete(flow.lease(10))
    assert len(set(done)) == len(done) == PARCELS
