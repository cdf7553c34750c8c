"""The client and the worker without Spark, against a started server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database
from fixtures.waiting import until, until_told
from forebay.client import (
    AsyncClient,
    Client,
    DispatchWorker,
    MessageRange,
    MessagesGone,
    MissingMessages,
    ParcelOutcome,
    ParcelPart,
    ParcelWork,
    Refused,
    StepRecord,
    SyncDispatchWorker,
)
from forebay.model.internal_queues import PRODUCER

__all__ = ["any_server", "http", "shared_postgres_database"]


def definition(queue: str, *classes: str, messages: int = 10, attempts: int = 1) -> dict[str, Any]:
    retry = {"maxAttempts": attempts, "delaySeconds": 0.0}
    steps = [{"action": f"a{n}", "actionClass": name, "retry": retry} for n, name in enumerate(classes)]
    source = {"queue": queue, "parcelMessages": messages, "parcelWaitSeconds": 0.05}
    return {"source": source, "steps": steps}


@pytest.fixture
async def client(http: Http) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(http.url) as found:
        yield found


async def finished(client: AsyncClient, flow: str, count: int) -> list[dict[str, Any]]:
    """All parcels of the flow, once so many of them are finished."""
    found: list[dict[str, Any]] = []

    async def are_finished() -> bool:
        found[:] = await client.parcels(flow=flow, limit=10_000)
        return sum(parcel["finishedAt"] is not None for parcel in found) >= count

    await until_told(are_finished, what=f"{count} finished parcels of {flow}")
    return found


async def test_workers_handle_every_message_once(client: AsyncClient) -> None:
    flow, queue, name = fresh("flow"), fresh("in"), fresh("class")
    await client.define_flow(flow, definition(queue, name, messages=7))
    await client.push_many(queue, range(100))
    seen: Counter[int] = Counter()

    async def handler(work: ParcelWork) -> ParcelOutcome:
        found = [message["data"] async for message in work.messages()]
        seen.update(found)
        return work.outcome(rows_in=len(found))

    workers = [DispatchWorker(client, {name: handler}, parcels=3, wait_seconds=1) for _ in range(3)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: sum(seen.values()) >= 100)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert seen == Counter(range(100))
    parcels = await client.parcels(flow=flow, limit=1000)
    assert {parcel["state"] for parcel in parcels} == {"COMPLETE"}
    assert sum(parcel["messages"] for parcel in parcels) == 100
    assert sum(worker.completed for worker in workers) == len(parcels)


async def test_what_a_handler_stages_is_read_by_the_next_step(client: AsyncClient) -> None:
    flow, queue, between = fresh("flow"), fresh("in"), fresh("between")
    first, second = fresh("first"), fresh("second")
    await client.define_flow(flow, definition(queue, first, second, messages=5))
    await client.push_many(queue, range(10))
    seen: list[int] = []

    async def doubled(work: ParcelWork) -> None:
        values = [message["data"] async for message in work.messages() if message["data"] % 2]
        await work.stage(between, pa.table({"payload": [str(2 * value) for value in values]}))

    async def collected(work: ParcelWork) -> None:
        seen.extend([message["data"] async for message in work.messages()])

    worker = DispatchWorker(client, {first: doubled, second: collected}, wait_seconds=1)
    running = asyncio.create_task(worker.run())
    await finished(client, flow, 2)
    worker.stop()
    await running
    assert sorted(seen) == [2, 6, 10, 14, 18]
    assert sorted([message["data"] async for message in client.read(between)]) == [2, 6, 10, 14, 18]


async def test_a_parcel_is_split_and_its_parts_go_on(client: AsyncClient) -> None:
    flow, queue = fresh("flow"), fresh("in")
    first, second = fresh("first"), fresh("second")
    await client.define_flow(flow, definition(queue, first, second))
    await client.push_many(queue, range(10))
    lease = await client.lease("w", [first], wait=10)
    assert lease is not None
    (parcel,) = lease.parcels
    parts = [
        ParcelPart([MessageRange(queue, 1, 4)], {"part": "a"}),
        ParcelPart([MessageRange(queue, 5, 10)], {"part": "b"}),
    ]
    await client.complete(lease, [ParcelOutcome(did=parcel.did, state="COMPLETE", children=parts)])
    taken: list[tuple[int, ...]] = []
    while len(taken) < 2:
        further = await client.lease("w", [second], wait=10)
        assert further is not None
        taken += [(one.ranges[0].first_seq, one.ranges[0].last_seq, one.messages) for one in further.parcels]
        await client.complete(further, [ParcelOutcome(did=one.did, state="COMPLETE") for one in further.parcels])
    assert sorted(taken) == [(1, 4, 4), (5, 10, 6)]
    found = await client.parcel(parcel.did)
    assert len(found["children"]) == 2


async def test_errors_are_listed_resumed_cancelled_and_replayed(client: AsyncClient) -> None:
    flow, queue, name = fresh("flow"), fresh("in"), fresh("class")
    await client.define_flow(flow, definition(queue, name, messages=1))
    await client.push_many(queue, range(3))
    is_broken = True

    async def handler(work: ParcelWork) -> None:
        if is_broken:
            raise RuntimeError("the service is down")

    worker = DispatchWorker(client, {name: handler}, wait_seconds=1)
    running = asyncio.create_task(worker.run())

    async def have_failed() -> bool:
        return len(await client.parcels(flow=flow, state="ERROR")) >= 3

    await until_told(have_failed)
    failed = await client.parcels(flow=flow, error="service is down", action="a0", action_class=name)
    assert len(failed) == 3
    since = datetime.now(UTC) - timedelta(hours=1)
    assert len(await client.parcels(flow=flow, since=since)) == 3
    assert await client.parcels(flow=flow, before=since) == []
    is_broken = False
    assert await client.resume_parcels([failed[0]["did"]]) == 1
    assert await client.cancel_parcels([failed[1]["did"]]) == 1
    assert await client.resume_parcels(flow=flow) == 1
    parcels = await finished(client, flow, 3)
    assert Counter(parcel["state"] for parcel in parcels) == {"COMPLETE": 2, "CANCELLED": 1}
    new = await client.replay_parcel(failed[1]["did"])
    await finished(client, flow, 4)
    assert (await client.parcel(new))["parcel"]["state"] == "COMPLETE"
    worker.stop()
    await running


async def test_parcel_whose_queue_is_made_again_under_its_lease_gives_none_of_the_new_messages(
    client: AsyncClient,
) -> None:
    flow, queue, name = fresh("flow"), fresh("in"), fresh("class")
    await client.define_flow(flow, definition(queue, name))
    await client.push_many(queue, range(10))
    lease = await client.lease("w", [name], wait=10)
    assert lease is not None
    (parcel,) = lease.parcels
    assert [message["data"] async for message in client.read_parcel(parcel)] == list(range(10))
    await client.delete_queue(queue)
    with pytest.raises(MessagesGone, match=f"queue '{queue}': messages 1-10 are gone"):
        assert [message async for message in client.read_parcel(parcel)]
    await client.push_many(queue, range(100, 130))
    with pytest.raises(MessagesGone) as gone:
        await anext(client.read_parcel(parcel))  # before the first of them, and not behind the last
    missing: list[MissingMessages] = []
    assert [message async for message in client.read_parcel(parcel, missing=missing)] == []
    assert (missing, gone.value.status) == (list(gone.value.missing), 410)
    assert [(one.queue, one.first_seq, one.last_seq, one.messages) for one in missing] == [(queue, 1, 10, 10)]


async def test_parcel_that_is_cleared_is_an_error_or_goes_on_as_its_flow_says(client: AsyncClient) -> None:
    strict, lenient, queue = fresh("strict"), fresh("lenient"), fresh("in")
    await client.define_flow(strict, definition(queue, strict))
    may_lose = definition(queue, lenient)
    may_lose["source"]["failOnDataLoss"] = False
    await client.define_flow(lenient, may_lose)
    await client.push_many(queue, range(10))

    async def are_cut() -> bool:
        return len([*await client.parcels(flow=strict), *await client.parcels(flow=lenient)]) >= 2

    await until_told(are_cut)
    await client.clear_queue(queue)

    async def handler(work: ParcelWork) -> ParcelOutcome:
        found = [message async for message in work.messages()]
        return ParcelOutcome(did=work.parcel.did, state="COMPLETE", rows_in=len(found))

    worker = DispatchWorker(client, {strict: handler, lenient: handler}, wait_seconds=1)
    running = asyncio.create_task(worker.run())
    (failed,) = await in_state(client, strict, "ERROR")
    (complete,) = await in_state(client, lenient, "COMPLETE")
    worker.stop()
    await running
    words = f"queue '{queue}': messages 1-10 are gone: they were removed"
    assert words in failed["error"]
    events = (await client.parcel(complete["did"]))["events"]
    assert [event["text"] for event in events if event["event"] == "LOST"] == [words]
    assert ((await client.flow(lenient))["lost"], (await client.flow(strict))["lost"]) == (10, 0)
    # What comes next is cut, and read whole: nothing that was in no parcel is gone.
    await client.push_many(queue, range(10))
    lease = await client.lease("w", [strict], wait=10)
    assert lease is not None
    assert len([message async for message in client.read_parcel(lease.parcels[0])]) == 10


async def in_state(client: AsyncClient, flow: str, state: str) -> list[dict[str, Any]]:
    await until_told(lambda: client.parcels(flow=flow, state=state), what=f"a parcel of {flow} in {state}")
    return await client.parcels(flow=flow, state=state)


async def test_flows_and_policies(client: AsyncClient) -> None:
    flow, policy = fresh("flow"), fresh("policy")
    told = await client.define_flow(flow, definition(fresh("in"), fresh("class")))
    assert (told["version"], told["state"]) == (1, "RUNNING")
    assert flow in [one["name"] for one in await client.flows()]
    assert (await client.pause_flow(flow))["state"] == "PAUSED"
    assert (await client.stop_flow(flow))["state"] == "STOPPED"
    assert (await client.resume_flow(flow))["state"] == "RUNNING"
    assert (await client.flow(flow))["state"] == "RUNNING"
    assert (await client.set_policy(policy, {"flow": flow}))["priority"] == 50
    assert policy in [one["name"] for one in await client.policies()]
    await client.remove_policy(policy)
    await client.forget_flow(flow)
    with pytest.raises(Refused) as caught:
        await client.flow(flow)
    assert caught.value.status == 404
    with pytest.raises(Refused, match=r"steps"):
        await client.define_flow(flow, {"source": {"queue": "q"}, "steps": []})


async def test_a_lease_is_kept_given_back_and_lost(client: AsyncClient) -> None:
    flow, queue, name = fresh("flow"), fresh("in"), fresh("class")
    await client.define_flow(flow, definition(queue, name))
    await client.push(queue, 1)
    lease = await client.lease("w", [name], wait=10)
    assert lease is not None
    assert lease.definition(lease.parcels[0])["name"] == flow
    assert await client.heartbeat(lease)
    assert await client.release(lease) == 1
    assert not await client.heartbeat(lease)
    with pytest.raises(Refused) as caught:
        await client.complete(lease, [ParcelOutcome(did=lease.parcels[0].did, state="COMPLETE")])
    assert caught.value.status == 409
    annotated = await client.annotate_parcel(lease.parcels[0].did, {"k": "v"})
    assert annotated["annotations"] == {"k": "v"}


VICTIM = Path(__file__).parents[1] / "fixtures" / "parcel_process.py"


async def victim(http: Http, action_class: str, queue: str, *words: str) -> tuple[asyncio.subprocess.Process, str]:
    """A process that has a parcel and has staged a row of it, and the id of its lease."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, str(VICTIM), http.url, action_class, queue, *words)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    return process, (await said(process)).removesuffix(" staged")


async def said(process: asyncio.subprocess.Process) -> str:
    """The next line of the process."""
    if process.stdout is None:
        raise AssertionError("no pipe to its output")
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


@pytest.mark.parametrize("any_server", ["embedded"], indirect=True)
async def test_worker_that_is_killed_and_one_that_is_frozen_past_its_lease_commit_nothing(
    client: AsyncClient, http: Http
) -> None:
    flow, queue, results, name = fresh("flow"), fresh("in"), fresh("out"), fresh("class")
    made = definition(queue, name, messages=1, attempts=3)
    made["steps"][0]["leaseSeconds"] = 1.0
    await client.define_flow(flow, made)
    await client.push_many(queue, range(2))
    (killed, _), (frozen, lease_id) = await asyncio.gather(
        victim(http, name, results, "--kept"), victim(http, name, results)
    )
    try:
        killed.kill()
        frozen.send_signal(signal.SIGSTOP)

        async def handler(work: ParcelWork) -> None:
            numbers = [str(message["data"]) async for message in work.messages()]
            await work.stage(results, pa.table({"payload": numbers}))

        worker = DispatchWorker(client, {name: handler}, wait_seconds=1)
        running = asyncio.create_task(worker.run())
        parcels = await finished(client, flow, 2)
        worker.stop()
        await running
        assert [parcel["state"] for parcel in parcels] == ["COMPLETE"] * 2
        assert frozen.stdin is not None
        frozen.stdin.write(b"\n")
        frozen.send_signal(signal.SIGCONT)
        assert await said(frozen) == "refused with 409"
        assert sorted([message["data"] async for message in client.read(results)]) == [0, 1]
        left = f"/api/v1/arrow/stages?producer={PRODUCER}&epoch={lease_id}"
        assert (await asyncio.to_thread(http.send, "DELETE", left)).json["removed"] == 0, "they were dropped"
        for parcel in parcels:
            events = (await client.parcel(parcel["did"]))["events"]
            assert [event["event"] for event in events] == ["EXPIRED", "ACTION", "COMPLETE"]
    finally:
        for process in (killed, frozen):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def test_the_worker_of_a_program_without_an_event_loop(http: Http) -> None:
    flow, queue, name = fresh("flow"), fresh("in"), fresh("class")
    seen: list[int] = []

    def handler(work: ParcelWork) -> None:
        seen.extend(message["data"] for message in work.read())
        if len(seen) == 20:
            worker.stop()

    with Client(http.url) as client:
        client.define_flow(flow, definition(queue, name, messages=5))
        client.push_many(queue, range(20))
        worker = SyncDispatchWorker(client, {name: handler}, wait_seconds=5)
        worker.run()
        assert sorted(seen) == list(range(20))
        assert [parcel["state"] for parcel in client.parcels(flow=flow)] == ["COMPLETE"] * 4
        (did, *_) = [parcel["did"] for parcel in client.parcels(flow=flow)]
        assert client.parcel(did)["parcel"]["flow"] == flow


async def test_records_start_at_a_step_once_however_often_they_are_sent(client: AsyncClient, http: Http) -> None:
    flow, queue, classes = fresh("flow"), fresh("in"), (fresh("first"), fresh("second"))
    await client.define_flow(flow, definition(queue, *classes))
    await client.push_many(queue, range(10))
    first = await client.lease("w", [classes[0]], wait=30)
    assert first is not None
    [parcel] = first.parcels
    await client.complete(first, [ParcelOutcome(did=parcel.did, state="COMPLETE")])
    rows = [StepRecord(parcel.did, f"letter-{n}", {"n": n}) for n in range(3)]
    started = await client.start_records(flow, "a1", rows[:2])
    again = await client.start_records(flow, "a1", rows)
    assert (started.records, again.records, again.repeated) == (2, 1, 2)
    with Client(http.url) as sync:
        known = await asyncio.to_thread(sync.start_records, flow, "a1", rows)
        assert known.repeated == 3
    second = await client.lease("w", [classes[1]], wait=30)
    assert second is not None
    of_records = [one for one in second.parcels if one.did != parcel.did]
    assert [one.did for one in of_records] == [*started.parcels, *again.parcels]
    read = [message["data"] for one in of_records async for message in client.read_parcel(one)]
    assert read == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(Refused, match="no step 'a7'"):
        await client.start_records(flow, "a7", rows)
    with pytest.raises(Refused) as refused:
        await client.start_records(fresh("flow"), "a1", rows)
    assert refused.value.status == 404
