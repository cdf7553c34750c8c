"""EXPORTING on every store: a parcel is complete when a group has passed what its last step gave to a queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from fixtures.arrow_steps import stage
from fixtures.dispatch_steps import Dispatching, dids, flow, roll_back_everywhere
from fixtures.store_steps import finish, take
from forebay.broker.bulk import StagesOf
from forebay.broker.overview import SeekTarget
from forebay.broker.room_work import statement
from forebay.broker.store import Store
from forebay.dispatch.export_watch import ExportWatch
from forebay.dispatch.faults import OutcomeRefused
from forebay.dispatch.ledger.ending import cancel
from forebay.dispatch.ledger.exporting import FIRST, confirm_exports, exports_ready
from forebay.dispatch.ledger.finding import find_parcels
from forebay.dispatch.ledger.parcels import show
from forebay.dispatch.ledger.resuming import resume
from forebay.dispatch.values import Await, CompleteRequest, Completion, Lease, Outcome
from forebay.dispatch.views import ParcelFilter
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

OUTBOX = ".export.warehouse"
SHOP = flow("shop", "parse")
AWAITS = statement("awaits", "SELECT count(*) FROM forebay.parcel_awaits")


class Exporting(Dispatching):
    """A server whose parcels go to destinations; the exporter is the test."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        super().__init__(store, EmbeddedWarm(), clock)
        self.watch = ExportWatch(store, self.limits, clock)

    async def export(self, lease: Lease, rows: int = 2, *, outcomes: Any = None, **fields: Any) -> Completion:
        """Complete a lease with so many rows for each parcel, in the partition of its flow."""
        payloads = [b"{}"] * rows * len(lease.parcels)
        flows = [parcel.flow for parcel in lease.parcels for _ in range(rows)]
        staged = await stage(self.store, *payloads, queue=OUTBOX, epoch=lease.lease_id, partition=flows)
        told = outcomes or [
            Outcome(parcel.did, "COMPLETE", awaits=[Await(OUTBOX, "export", parcel.flow, rows)], **fields)
            for parcel in lease.parcels
        ]
        return await self.leasing.complete(request(lease, told, [staged.stage_id]))

    async def send(self, count: int = 100, *, status: str = "completed") -> int:
        """The exporter takes messages of one partition, and the destination answers; how many they were."""
        popped = await take(self.store, batch=count, queue=OUTBOX, group="export")
        await finish(self.store, popped, status, group="export")
        return len(popped.messages)

    async def exporting_flows(self) -> list[str]:
        """The flows of parcels that are listed as EXPORTING."""
        found = await self.store.look(partial(find_parcels, ParcelFilter(state="EXPORTING"), 100))
        return [parcel.flow for parcel in found]

    async def awaits(self) -> int:
        [[count]] = await self.ask(AWAITS)
        return int(count)


def request(lease: Lease, outcomes: list[Outcome], stages: list[str]) -> CompleteRequest:
    return CompleteRequest(lease.lease_id, outcomes, StagesOf("spark", lease.lease_id), stages)


@pytest.fixture
def exporting(store: Store, clock: FakeClock) -> Exporting:
    return Exporting(store, clock)


async def test_parcel_is_exporting_until_the_group_has_passed_its_rows(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    lease = await exporting.leased()
    done = await exporting.export(lease)
    assert (done.messages, done.parcels) == (4, 2)
    assert await exporting.states() == {"EXPORTING": 2}
    assert await exporting.parcel_states() == {"IN_FLIGHT": 2}
    assert await exporting.watch.turn() == exporting.limits.export_seconds
    await exporting.send(3)
    await exporting.watch.turn()
    assert await exporting.states() == {"EXPORTING": 2}, "the last row is not sent"
    await exporting.send()
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 2}
    assert await exporting.parcel_states() == {"COMPLETE": 2}
    assert await exporting.awaits() == 0
    assert [event[1] for event in await exporting.events(dids(lease)[0])] == ["EXPORTING", "EXPORTED"]
    assert await exporting.watch.turn() == exporting.limits.export_idle_seconds
    await exporting.check()


async def test_leases_are_confirmed_one_after_the_other(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 3)
    leases = [await exporting.leased(parcels=1) for _ in range(3)]
    for lease in leases:
        await exporting.export(lease)
    complete = []
    for _ in range(3):
        await exporting.send(2)
        await exporting.watch.turn()
        complete.append((await exporting.states())["COMPLETE"])
    assert complete == [1, 2, 3]


async def test_flows_wait_for_their_own_partitions(exporting: Exporting) -> None:
    one, two = flow("one", "parse"), flow("two", "parse")
    await exporting.define(one, two)
    await exporting.arrive(one, 1)
    await exporting.arrive(two, 1)
    await exporting.export(await exporting.leased())
    popped = await take(exporting.store, batch=100, queue=OUTBOX, group="export", partition="one")
    await finish(exporting.store, popped, group="export")
    await exporting.watch.turn()
    assert await exporting.states() == {"EXPORTING": 1, "COMPLETE": 1}
    assert await exporting.exporting_flows() == ["two"]
    await exporting.send()
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 2}


async def test_no_rows_are_nothing_to_wait_for(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    lease = await exporting.leased()
    first, second = dids(lease)
    staged = await stage(exporting.store, b"{}", queue="elsewhere", epoch=lease.lease_id)
    outcomes = [
        Outcome(first, "COMPLETE", awaits=[Await(OUTBOX, "export", "shop", 0)]),
        Outcome(second, "COMPLETE", awaits=[Await(OUTBOX, "export", "shop", 3)]),
    ]
    await exporting.leasing.complete(request(lease, outcomes, [staged.stage_id]))
    assert await exporting.states() == {"COMPLETE": 2}, "nothing was committed to the outbox"
    assert await exporting.parcel_states() == {"COMPLETE": 2}
    assert [event[1] for event in await exporting.events(second)] == ["COMPLETE"]


async def test_all_that_is_awaited_has_to_be_passed(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 1)
    lease = await exporting.leased()
    awaits = [Await(OUTBOX, group, "shop", 2) for group in ("export", "archive", "archive")]
    await exporting.export(lease, outcomes=[Outcome(dids(lease)[0], "COMPLETE", awaits=awaits)])
    assert await exporting.awaits() == 2
    await exporting.send()
    await exporting.watch.turn()
    assert await exporting.states() == {"EXPORTING": 1}
    await exporting.store.seek("archive", OUTBOX, None, SeekTarget(to_end=True))
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 1}
    events = [event[1] for event in await exporting.events(dids(lease)[0])]
    assert events == ["EXPORTING", "EXPORTED", "EXPORTED"]


async def test_dead_letters_are_told_in_the_history(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    leases = [await exporting.leased(parcels=1) for _ in range(2)]
    for lease in leases:
        await exporting.export(lease, 3)
    await exporting.send(2, status="dlq")
    while await exporting.send():
        pass
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 2}
    texts = [(await exporting.events(dids(lease)[0]))[-1][4] for lease in leases]
    assert texts[0].endswith("; of what its lease had committed, 2 became dead letters")
    assert "dead" not in texts[1]


@pytest.mark.parametrize("made_again", [False, True])
async def test_deleted_queue_puts_its_parcels_into_error_and_a_resume_runs_the_step_again(
    exporting: Exporting, made_again: bool
) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 1)
    lease = await exporting.leased()
    await exporting.export(lease)
    await exporting.store.delete_queue(OUTBOX)
    if made_again:
        await stage_and_commit(exporting.store)
        await exporting.send()
    await exporting.watch.turn()
    assert await exporting.parcel_states() == {"ERROR": 1}
    assert await exporting.awaits() == 0
    *_, (_, event, _, _, text) = await exporting.events(dids(lease)[0])
    assert (event, text.split(" before")[0]) == ("ERROR", f"queue '{OUTBOX}' was deleted")
    resumed = await exporting.store.together(partial(resume, ParcelFilter(flow="shop"), 10, 10))
    await exporting.leasing.offer(resumed.enqueued)
    await exporting.export(await exporting.leased())
    while await exporting.send():
        pass
    await exporting.watch.turn()
    assert await exporting.parcel_states() == {"COMPLETE": 1}


async def test_group_that_is_not_there_is_waited_for(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 1)
    await exporting.export(await exporting.leased())
    await exporting.watch.turn()
    await exporting.send(1)
    await exporting.store.delete_group("export", OUTBOX)
    await exporting.watch.turn()
    assert await exporting.states() == {"EXPORTING": 1}
    assert await exporting.send() == 2, "the group begins anew"
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 1}


async def test_group_that_nothing_makes_is_told_after_a_minute(exporting: Exporting, clock: FakeClock) -> None:
    """A destination whose name was mistyped, or that no server has."""
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 1)
    await exporting.export(await exporting.leased())
    await exporting.watch.turn()
    assert exporting.watch.untaken() == []
    clock.advance(59)
    await exporting.watch.turn()
    assert exporting.watch.untaken() == []
    clock.advance(1)
    await exporting.watch.turn()
    assert exporting.watch.untaken() == [".export.warehouse@export"]
    await exporting.send(1)
    await exporting.watch.turn()
    assert exporting.watch.untaken() == []
    assert await exporting.states() == {"EXPORTING": 1}


async def test_cancelled_parcel_waits_for_nothing(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    for _ in range(2):
        await exporting.export(await exporting.leased(parcels=1))
    await exporting.store.together(partial(cancel, ParcelFilter(state="EXPORTING"), 1))
    assert await exporting.states() == {"EXPORTING": 1, "CANCELLED": 1}
    assert await exporting.awaits() == 1
    await exporting.send()
    await exporting.watch.turn()
    assert await exporting.states() == {"COMPLETE": 1, "CANCELLED": 1}


async def test_resume_leaves_exporting_parcels_alone(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 1)
    await exporting.export(await exporting.leased())
    assert (await exporting.store.together(partial(resume, ParcelFilter(flow="shop"), 10, 10))).parcels == 0
    assert await exporting.states() == {"EXPORTING": 1}


async def test_same_completion_again_is_known_while_exporting_and_after(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    lease = await exporting.leased()
    await exporting.export(lease)
    assert (await exporting.export(lease)).is_repeated
    await exporting.send()
    await exporting.watch.turn()
    assert (await exporting.export(lease)).is_repeated
    assert await exporting.states() == {"COMPLETE": 2}
    assert await exporting.send() == 0


async def test_only_a_last_step_awaits(exporting: Exporting) -> None:
    two = flow("two", "parse", "enrich")
    await exporting.define(two)
    await exporting.arrive(two, 1)
    lease = await exporting.leased()
    with pytest.raises(OutcomeRefused, match=r"awaits: step 0 .* is not the last"):
        await exporting.export(lease)
    assert await exporting.states() == {"LEASED": 1}
    await exporting.complete(lease)


async def test_parcels_are_confirmed_a_piece_at_a_time(store: Store, clock: FakeClock) -> None:
    exporting = Exporting(store, clock)
    exporting.limits = exporting.limits._replace(piece_parcels=2)
    exporting.watch = ExportWatch(store, exporting.limits, clock)
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 5)
    await exporting.export(await exporting.leased())
    await exporting.send()
    turns = [await exporting.watch.turn() for _ in range(4)]
    assert turns == [0, 0, exporting.limits.export_seconds, exporting.limits.export_idle_seconds]
    assert await exporting.states() == {"COMPLETE": 5}


async def test_listing_and_history_show_what_is_exporting(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    lease = await exporting.leased(parcels=1)
    await exporting.export(lease)
    assert await exporting.exporting_flows() == ["shop"]
    found = await exporting.store.look(partial(show, dids(lease)[0]))
    assert found is not None
    assert (found.parcel.state, found.parcel.step_state) == ("IN_FLIGHT", "EXPORTING")
    assert [step.state for step in found.steps] == ["EXPORTING"]


async def test_confirming_that_is_rolled_back_anywhere_leaves_nothing(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 2)
    await exporting.export(await exporting.leased())
    await exporting.send()
    awaited, *_ = await exporting.store.look(partial(exports_ready, FIRST))
    assert awaited is not None

    async def is_untouched() -> None:
        assert await exporting.states() == {"EXPORTING": 2}
        assert await exporting.awaits() == 2

    assert await roll_back_everywhere(exporting.store, partial(confirm_exports, awaited, 10), is_untouched) > 8
    await exporting.watch.turn()
    assert await exporting.parcel_states() == {"COMPLETE": 2}


async def test_servers_that_confirm_at_once_confirm_once(exporting: Exporting) -> None:
    await exporting.define(SHOP)
    await exporting.arrive(SHOP, 3)
    lease = await exporting.leased()
    awaits = [Await(OUTBOX, group, "shop", 2) for group in ("export", "archive")]
    await exporting.export(lease, outcomes=[Outcome(did, "COMPLETE", awaits=awaits) for did in dids(lease)])
    for group in ("export", "archive"):
        await exporting.store.seek(group, OUTBOX, None, SeekTarget(to_end=True))
    servers = [ExportWatch(exporting.store, exporting.limits, exporting.clock) for _ in range(4)]
    await asyncio.gather(*[server.turn() for server in servers])
    assert await exporting.parcel_states() == {"COMPLETE": 3}
    assert Counter(event[1] for event in await exporting.events(dids(lease)[0])) == {"EXPORTING": 1, "EXPORTED": 2}


async def stage_and_commit(store: Store) -> None:
    staged = await stage(store, b"{}", b"{}", b"{}", queue=OUTBOX, epoch="other", partition=["shop"] * 3)
    await store.commit_stages(StagesOf("spark", "other"), [staged.stage_id])
