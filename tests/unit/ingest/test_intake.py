"""The way in, on a store that goes away and comes back: nothing lost, nothing twice, order kept, answers true."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from fixtures.buffer_steps import AWAY, QUICK, Shelf, drain_turns, drained, intake_on, message, started, until
from forebay.broker.encryption import Cipher
from forebay.broker.messages import Pushed
from forebay.broker.numbering import each_message
from forebay.errors import BufferExhausted, DiskFull, QueueFull, StoreUnavailable
from forebay.filesystem import RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import BufferKind
from forebay.model.push_run import PushRun
from forebay.model.text_block import TextBlock
from forebay.testing.faulty_filesystem import Fail, FaultyFilesystem, FullDisk, nth


def statuses(pushed: Sequence[Pushed]) -> list[str]:
    return [one.status for one in pushed]


async def test_push_is_direct_while_the_store_is_there(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        [pushed] = await intake.push([message("1")])
        assert (pushed.status, pushed.receipt) == ("queued", "log")
        assert (await intake.figures()).size_bytes == 0


async def test_outage_is_bridged_in_order(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        await intake.push([message("1")])
        store.trouble = AWAY
        [pushed] = await intake.push([message("2")])
        assert (pushed.status, pushed.receipt, pushed.seq) == ("buffered", "buffer", 0)
        assert not intake.is_db_healthy
        for n in range(3, 50):
            await intake.push([message(str(n))])
        assert (await intake.figures()).queues == {"orders": 48}
        store.trouble = None
        await drained(intake)
        assert intake.is_db_healthy
        assert statuses(await intake.push([message("50")])) == ["queued"]
    assert store.texts() == [str(n) for n in range(1, 51)]


async def test_every_message_of_a_run_that_is_buffered_or_held_has_its_answer(tmp_path: Path) -> None:
    store = Shelf()
    run = PushRun("orders", ["p", "other", "p"], TextBlock.of([b'"1"', b'"2"', b'"3"']), ["a", "b", "c"])
    async with started(store, tmp_path, limits=QUICK._replace(wait_seconds=0.0)) as intake:
        assert statuses(each_message(await intake.push_qos0([run], 1, 1))) == ["buffered"] * 3
        await drained(intake)
        store.trouble = AWAY
        assert (
            statuses(each_message(await intake.push([replace(run, transaction_ids=["d", "e", "f"])])))
            == ["buffered"] * 3
        )
        store.trouble = None
        await drained(intake)
        store.trouble = AWAY
        await intake.push([message("4")])
        store.trouble, store.seconds = None, 0.2
        await until(lambda: intake.is_db_healthy or not intake.drain_loop.held_events)
        pushed = each_message(await intake.push([replace(run, transaction_ids=["g", "h", "i"])]))
        assert len(pushed) == 3
        store.seconds = 0.0
        await drained(intake)
    assert store.texts() == ["1", "3", "1", "3", "4", "1", "3"]
    assert store.texts(partition="other") == ["2", "2", "2"]


async def test_later_pushes_go_behind_and_other_partitions_flow(tmp_path: Path) -> None:
    store = Shelf()
    limits = QUICK._replace(wait_seconds=0.0)
    async with started(store, tmp_path, limits=limits) as intake:
        store.trouble = AWAY
        await intake.push([message("1")])
        store.trouble = None
        store.seconds = 0.2  # the drain takes its time
        await until(lambda: intake.is_db_healthy or not intake.drain_loop.held_events)
        # The store is back, and the backlog is not gone: it is on its way.
        intake.drain_loop.health.is_healthy = True
        intake.drain_loop.failover.backlog.add([("orders", "p")])
        store.seconds = 0.0
        told = await intake.push([message("2"), message("other", partition="free")])
        assert statuses(told) == ["buffered", "queued"]
        intake.drain_loop.failover.backlog.remove([("orders", "p")])
        await drained(intake)
    assert store.texts() == ["1", "2"]
    assert store.texts(partition="free") == ["other"]


async def test_busy_partition_gets_back_to_the_direct_way(tmp_path: Path) -> None:
    """A producer that never pauses must not be buffered for ever."""
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("0")])
        store.trouble = None
        told = []
        async with asyncio.timeout(20):
            for n in range(1, 10_000):
                told += statuses(await intake.push([message(str(n))]))
                if told[-1] == "queued":
                    break
        assert told[-1] == "queued"
    assert store.texts() == [str(n) for n in range(len(told) + 1)]


async def test_store_that_hangs_is_left_after_its_time(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path, is_remote=True) as intake:
        store.seconds = 3600
        [pushed] = await intake.push([message("1")])
        assert pushed.status == "buffered"
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[intake.push([message(str(n))]) for n in range(2, 40)])
        assert asyncio.get_running_loop().time() - began < 20, "the breaker lets nobody pay the time-out again"
        store.seconds = 0.0
        intake.drain_loop._worker.cancel()  # type: ignore[union-attr]  # it hangs in the store, as it should
        await asyncio.gather(intake.drain_loop._worker, return_exceptions=True)  # type: ignore[arg-type]
        intake.drain_loop._worker = asyncio.create_task(intake.drain_loop._work())
        await drained(intake)
    assert store.texts() == [str(n) for n in range(1, 40)]


async def test_commit_whose_answer_was_lost_is_stored_once(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.is_lost_answer = True
        assert statuses(await intake.push([message("1"), message("2")])) == ["buffered"] * 2
        store.is_lost_answer = False
        await drained(intake)
        figures = await intake.figures()
        assert figures.counts["failover"].duplicates == 2
    assert store.texts() == ["1", "2"]


async def test_maintenance_buffers_and_does_not_drain(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        intake.drain_loop.is_paused = True
        assert statuses(await intake.push([message("1")])) == ["buffered"]
        await drain_turns(intake)
        assert store.texts() == []
        intake.drain_loop.is_paused = False
        await drained(intake)
    assert store.texts() == ["1"]


async def test_store_that_comes_back_during_maintenance_is_healthy(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        intake.drain_loop.is_paused = True
        await intake.push([message("1")])
        assert intake.is_db_healthy, "that pushes are buffered says nothing of the store"
        store.trouble = AWAY
        await until(lambda: not intake.is_db_healthy)
        store.trouble = None
        await until(lambda: intake.is_db_healthy)
        assert store.texts() == []
        intake.drain_loop.is_paused = False
        await drained(intake)
    assert store.texts() == ["1"]


async def test_refusals_of_the_store_are_the_producers(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = QueueFull("orders", 5, 5)
        with pytest.raises(QueueFull):
            await intake.push([message("1")])
        assert intake.is_db_healthy


# QoS 0


async def test_qos0_is_stored_in_few_writes(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        for n in range(1000):
            [pushed] = await intake.push_qos0([message(str(n))], 60_000, 250)
            assert (pushed.status, pushed.receipt) == ("buffered", "os")
        await drained(intake)
        assert len(store.writes) <= 10
    assert store.texts() == [str(n) for n in range(1000)]


async def test_qos0_waits_for_the_time_it_was_given(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        began = time.monotonic()
        await intake.push_qos0([message("1")], 300, 1000)
        await drained(intake)
        assert store.texts() == ["1"]
        assert time.monotonic() - began >= 0.3


async def test_stop_stores_what_waits(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        await intake.push_qos0([message("1")], 3_600_000, 1000)
    assert store.texts() == ["1"]


async def test_qos0_survives_an_outage_and_a_restart(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push_qos0([message("1"), message("2")], 1, 1)
        await until(lambda: not intake.is_db_healthy)
    async with started(store, tmp_path) as intake:
        assert not intake.is_db_healthy
        await intake.push_qos0([message("3")], 1, 1)
        store.trouble = None
        await drained(intake)
    assert store.texts() == ["1", "2", "3"]


# start


async def test_start_recovers_before_it_returns(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1")])
        await intake.push_qos0([message("a", partition="q")], 1, 1)
    store.trouble = None
    async with started(store, tmp_path) as intake:
        assert store.texts() == ["1"]
        assert store.texts(partition="q") == ["a"]
        assert store.items[0].payloads.data == b'"1"', "failover comes first"


async def test_server_starts_without_its_store(tmp_path: Path) -> None:
    store = Shelf()
    store.trouble = AWAY
    async with started(store, tmp_path) as intake:
        assert not intake.drain_loop.is_store_open
        assert statuses(await intake.push([message("1")])) == ["buffered"]
        store.trouble = None
        await until(lambda: intake.drain_loop.is_store_open)
        await drained(intake)
    assert store.texts() == ["1"]


async def test_torn_end_is_set_aside_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Shelf()
    store.trouble = AWAY
    async with started(store, tmp_path) as intake:
        await intake.push([message("1")])
    path = tmp_path / "failover.buf"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-7])
    store.trouble = None
    async with started(store, tmp_path) as intake:
        figures = await intake.figures()
        assert figures.counts["failover"].damaged_bytes == len(whole) - 7
        [kept] = figures.damaged_files
        assert (tmp_path / "failed" / kept).read_bytes() == whole[:-7]
    assert store.texts() == ["1"]
    assert "a torn end" in caplog.text


async def test_files_of_others_are_left_alone_and_told(tmp_path: Path) -> None:
    (tmp_path / "failed").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "failed" / "old.buf").write_text("mine too")
    async with started(Shelf(), tmp_path) as intake:
        assert (await intake.figures()).strangers == ["notes.txt", "failed/old.buf"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


# a part of a request


@pytest.mark.parametrize(("is_lost_answer", "status"), [(True, "unknown"), (False, "failed")])
async def test_item_is_failed_only_if_it_is_not_stored(tmp_path: Path, is_lost_answer: bool, status: str) -> None:
    """One partition is fenced and buffered; the other one's store does not answer, and the buffer is full by then."""
    store = Shelf()
    limits = QUICK._replace(wait_seconds=0.0, max_events=2)
    async with started(store, tmp_path, limits=limits) as intake:
        intake.drain_loop.failover.backlog.add([("orders", "p")])
        intake.drain_loop.is_store_open = True
        store.is_lost_answer = is_lost_answer
        store.trouble = None if is_lost_answer else AWAY
        told = await intake.push([message("1"), message("2", partition="free")])
        assert statuses(told) == ["buffered", status]
        assert store.texts(partition="free") == (["2"] if is_lost_answer else [])
        intake.drain_loop.failover.backlog.remove([("orders", "p")])
        store.trouble, store.is_lost_answer = None, False
        await drained(intake)


# a queue that is deleted


async def test_deletion_waits_for_what_was_accepted_before_it(tmp_path: Path) -> None:
    store = Shelf()
    limits = QUICK._replace(flush_seconds=3600)
    async with started(store, tmp_path, limits=limits) as intake:
        await intake.push_qos0([message("1"), message("other", queue="other")], 3_600_000, 1000)
        await intake.wait_until_stored("orders")
        assert store.texts() == ["1"]


async def test_deletion_is_refused_while_messages_of_the_queue_cannot_be_stored(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1")])
        with pytest.raises(StoreUnavailable, match=r"1 messages .* 'orders' wait"):
            await intake.wait_until_stored("orders")
        await intake.wait_until_stored("other")
        store.trouble = None
        await drained(intake)


async def test_deletion_does_not_wait_for_what_the_queue_refuses(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1", queue="full")])
        store.refuses = {"full"}
        store.trouble = None
        await until(lambda: bool(intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events))
        await intake.wait_until_stored("full")
        store.refuses = set()
        await drained(intake)


# refused by a store that is there


async def test_queue_that_refuses_holds_its_own_messages_only(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1", queue="full"), message("a"), message("2", queue="full")])
        store.refuses = {"full"}
        store.trouble = None
        await until(lambda: store.texts() == ["a"])
        await until(lambda: intake.is_db_healthy)
        # Later ones stay behind, whichever way they come.
        assert statuses(await intake.push([message("3", queue="full"), message("b")])) == ["buffered", "queued"]
        await until(lambda: intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events == 3)
        figures = await intake.figures()
        assert (figures.pending, figures.failed) == (0, 3)
        assert [one.queue for one in figures.failed_files] == ["full"]
        store.refuses = set()
        await drained(intake)
        await until(lambda: not intake.drain_loop.drainers[BufferKind.FAILOVER].failed)
        assert (await intake.figures()).failed_files == []
        assert statuses(await intake.push([message("4", queue="full")])) == ["queued"]
    assert store.texts("full") == ["1", "2", "3", "4"]


async def test_refused_messages_survive_a_restart(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        await intake.push([message("1", queue="full")])
        store.refuses = {"full"}
        store.trouble = None
        await until(lambda: bool(intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events))
    async with started(store, tmp_path) as intake:
        assert (await intake.figures()).failed == 1
        assert statuses(await intake.push([message("2", queue="full")])) == ["buffered"]
        store.refuses = set()
        await drained(intake)
    assert store.texts("full") == ["1", "2"]


# limits and disks


async def test_full_buffer_refuses_and_keeps_what_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Shelf()
    limits = QUICK._replace(max_events=10, alert_events=5)
    async with started(store, tmp_path, limits=limits) as intake:
        store.trouble = AWAY
        for n in range(10):
            await intake.push([message(str(n))])
        with pytest.raises(BufferExhausted, match="10 events"):
            await intake.push([message("10")])
        assert caplog.text.count("much waits in buffer files") == 1
        store.trouble = None
        await drained(intake)
        await intake.push([message("10")])
    assert store.texts() == [str(n) for n in range(11)]


async def test_full_disk_takes_back_what_it_wrote(tmp_path: Path) -> None:
    store = Shelf()
    plan = FullDisk(700)
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), plan)) as intake:
        store.trouble = AWAY
        told: list[str] = []
        for n in range(10):
            try:
                await intake.push([message(str(n))])
                told.append(str(n))
            except BufferExhausted:
                pass
        assert 0 < len(told) < 10
        plan.room = 1 << 30
        store.trouble = None
        await drained(intake)
        await until(lambda: store.texts() == told)
        assert (await intake.figures()).damaged_files == []


async def test_sync_that_fails_is_told_as_unknown(tmp_path: Path) -> None:
    store = Shelf()
    plan = nth("sync", 1, Fail(errno.EIO), path_ends="failover.buf")
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), plan)) as intake:
        store.trouble = AWAY
        with pytest.raises(StoreUnavailable) as told:
            await intake.push([message("1")])
        assert told.value.is_outcome_unknown
        assert statuses(await intake.push([message("2")])) == ["buffered"]
        store.trouble = None
        await until(lambda: "2" in store.texts())


async def test_disk_of_the_log_full_goes_to_the_buffer(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = DiskFull(Path("log"), "0 bytes left")
        assert statuses(await intake.push([message("1")])) == ["buffered"]
        store.trouble = None
        await drained(intake)
    assert store.texts() == ["1"]


async def test_both_disks_full_tells_of_the_log(tmp_path: Path) -> None:
    store = Shelf()
    filesystem = FaultyFilesystem(RealFilesystem(), FullDisk(0))
    async with started(store, tmp_path, filesystem=filesystem) as intake:
        store.trouble = DiskFull(Path("log"), "0 bytes left")
        with pytest.raises(DiskFull):
            await intake.push([message("1")])
        store.trouble = None
        assert statuses(await intake.push([message("2")])) == ["queued"]


# several processes


async def test_guest_goes_behind_the_events_of_others(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path, is_remote=True) as owner:
        guest = intake_on(store, tmp_path, is_remote=True)
        await guest.start(lambda queue, count: None)
        store.trouble = AWAY
        assert statuses(await owner.push([message("1")])) == ["buffered"]
        store.trouble = None
        # The guest's own store is fine, and it has pushed nothing yet.
        told = statuses(await guest.push([message("2")]))
        assert told[0] in ("buffered", "queued")
        await until(lambda: store.texts() == ["1", "2"])
        await guest.stop()
    assert store.texts() == ["1", "2"]


async def test_guest_gets_back_to_the_direct_way(tmp_path: Path) -> None:
    """It cannot count what the other has drained of its own events."""
    store = Shelf()
    async with started(store, tmp_path, is_remote=True), started(store, tmp_path, is_remote=True) as guest:
        store.trouble = AWAY
        assert statuses(await guest.push([message("1")])) == ["buffered"]
        store.trouble = None
        await until(lambda: store.texts() == ["1"])
        await until(lambda: guest.is_db_healthy)
        assert statuses(await guest.push([message("2")])) == ["queued"]
    assert store.texts() == ["1", "2"]


async def test_position_in_a_failed_file_survives_its_growth(tmp_path: Path) -> None:
    directory = BufferDirectory(RealFilesystem(), tmp_path)
    directory.prepare()
    path = directory.failed.new_file(BufferKind.FAILOVER, 1)
    directory.failed.append(path, [b"x" * 100])
    directory.positions.note(path, 60)
    directory.failed.append(path, [b"y" * 100])
    assert directory.positions.of(path) == 60


async def test_guest_takes_over_when_the_owner_ends(tmp_path: Path) -> None:
    store = Shelf()
    owner, guest = (intake_on(store, tmp_path, is_remote=True) for _ in range(2))
    await owner.start(lambda queue, count: None)
    await guest.start(lambda queue, count: None)
    store.trouble = AWAY
    await owner.push([message("1")])
    await guest.push([message("2")])
    await owner.push([message("3")])
    await owner.stop()
    store.trouble = None
    await until(lambda: guest.drain_loop.failover.is_owner)
    await drained(guest)
    assert statuses(await guest.push([message("4")])) == ["queued"]
    await guest.stop()
    assert store.texts() == ["1", "2", "3", "4"]


# secrets


async def test_with_a_key_nothing_is_on_the_disk_in_clear(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path, cipher=Cipher(bytes(32))) as intake:
        store.trouble = AWAY
        await intake.push([message('"secret"')])
        await intake.push_qos0([message('"secret"', partition="q")], 1, 1)
        assert all(b"secret" not in path.read_bytes() for path in tmp_path.rglob("*.buf"))
        store.trouble = None
        await drained(intake)
    assert store.texts() == ['"secret"']
