"""Who is woken when messages arrive. Nothing here sleeps: the loop runs until all that can run has run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from fixtures.waiting import settled
from forebay.broker.waiting import (
    LOOK_SECONDS_MIN,
    NET_LISTS_MAX,
    NET_SECONDS,
    PARTITION_LOOKS_MIN,
    Visit,
    WaitingRoom,
    Wanted,
)

Q = Wanted("group", "q")
FAR = 3600.0


def run(law: Callable[[WaitingRoom], Awaitable[None]], *, net_seconds: float = NET_SECONDS) -> None:
    async def inside() -> None:
        room = WaitingRoom(asyncio.get_running_loop(), net_seconds=net_seconds)
        try:
            await law(room)
        finally:
            room.close()

    asyncio.run(inside())


class Consumer:
    """Waits once, and remembers what it was told."""

    def __init__(self, room: WaitingRoom, wanted: Wanted = Q) -> None:
        self.visit: Visit = room.enter(wanted)
        deadline = asyncio.get_running_loop().time() + FAR
        self.task = asyncio.create_task(self.visit.until_woken(deadline))

    @property
    def is_woken(self) -> bool:
        return self.task.done() and self.task.result()


async def parked(room: WaitingRoom, *wanted: Wanted) -> list[Consumer]:
    consumers = [Consumer(room, each) for each in wanted]
    await settled()
    return consumers


def woken(consumers: list[Consumer]) -> list[int]:
    return [place for place, consumer in enumerate(consumers) if consumer.is_woken]


def test_as_many_are_woken_as_there_are_messages_first_come_first_served() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Q, Q, Q, Q)
        room.announce("q", 2)
        await settled()
        assert woken(consumers) == [0, 1]
        assert len(room) == 2

    run(law)


def test_every_group_is_woken_for_the_same_message() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Wanted("a", "q"), Wanted("a", "q"), Wanted("b", "q"))
        room.announce("q", 1)
        await settled()
        assert woken(consumers) == [0, 2]

    run(law)


def test_other_queues_are_left_alone() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Wanted("group", "other"))
        room.announce("q", 9)
        await settled()
        assert woken(consumers) == []

    run(law)


def test_waker_may_be_called_from_another_thread() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Q)
        thread = threading.Thread(target=room.on_available, args=("q", 1))
        thread.start()
        assert await asyncio.wait_for(consumers[0].task, 30)
        thread.join()

    run(law)


def test_message_that_arrives_between_look_and_wait_is_not_missed() -> None:
    async def law(room: WaitingRoom) -> None:
        visit = room.enter(Q)
        visit.looked(0, 1)
        room.announce("q", 1)
        assert await visit.until_woken(asyncio.get_running_loop().time() + FAR)

    run(law)


@pytest.mark.parametrize(("found", "next_is_woken"), [(10, True), (9, False), (0, False)])
def test_full_batch_wakes_the_next(found: int, next_is_woken: bool) -> None:
    async def law(room: WaitingRoom) -> None:
        first, second = await parked(room, Q, Q)
        room.announce("q", 1)
        await settled()
        first.visit.looked(found, 10)
        await settled()
        assert second.is_woken is next_is_woken

    run(law)


def test_consumer_that_leaves_after_it_was_woken_passes_it_on() -> None:
    async def law(room: WaitingRoom) -> None:
        first, second = await parked(room, Q, Q)
        room.announce("q", 1)
        first.visit.leave()
        await settled()
        assert second.is_woken

    run(law)


def test_consumer_that_goes_away_is_out_of_its_line_at_once() -> None:
    async def law(room: WaitingRoom) -> None:
        first, second = await parked(room, Q, Q)
        first.visit.abandon()
        await settled()
        first.visit.leave()
        assert (first.is_woken, len(room)) == (False, 1)
        room.announce("q", 1)
        await settled()
        assert second.is_woken

    run(law)


def test_consumer_that_looked_in_vain_is_still_first() -> None:
    async def law(room: WaitingRoom) -> None:
        first, second = await parked(room, Q, Q)
        room.announce("q", 1)
        await settled()
        first.visit.looked(0, 1)
        again = asyncio.create_task(first.visit.until_woken(asyncio.get_running_loop().time() + FAR))
        await settled()
        room.announce("q", 1)
        await settled()
        assert again.done()
        assert not second.is_woken

    run(law)


def test_time_over_is_told() -> None:
    async def law(room: WaitingRoom) -> None:
        visit = room.enter(Q)
        assert not await visit.until_woken(asyncio.get_running_loop().time())
        assert not await asyncio.wait_for(visit.until_woken(asyncio.get_running_loop().time() + 0.001), 30)
        visit.leave()
        assert len(room) == 0

    run(law)


def test_net_wakes_one_of_each_line_and_what_it_finds_wakes_the_next() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Q, Q, Wanted("group", "other"))
        room.cast_net()
        await settled()
        assert woken(consumers) == [0, 2]
        consumers[0].visit.looked(1, 100)
        await settled()
        assert woken(consumers) == [0, 1, 2]

    run(law)


def test_net_reaches_every_line_in_turn() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, *(Wanted("group", f"q{n}") for n in range(NET_LISTS_MAX + 50)))
        room.cast_net()
        await settled()
        assert len(woken(consumers)) == NET_LISTS_MAX
        room.cast_net()
        await settled()
        assert len(woken(consumers)) == NET_LISTS_MAX + 50

    run(law)


def test_net_is_cast_by_itself_while_somebody_waits() -> None:
    async def law(room: WaitingRoom) -> None:
        (consumer,) = await parked(room, Q)
        assert await asyncio.wait_for(consumer.task, 30)

    run(law, net_seconds=0.001)


def test_push_to_a_partition_wakes_those_who_wait_for_it() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Wanted("group", "q", "p1"), Wanted("group", "q", "p2"))
        room.announce_partition("q", "p2")
        await settled()
        assert woken(consumers) == [1]

    run(law)


def test_commit_of_unknown_partitions_lets_a_few_look_and_others_next_time() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, *(Wanted("group", "q", f"p{n}") for n in range(2 * PARTITION_LOOKS_MIN)))
        room.announce("q", 1)
        await settled()
        assert woken(consumers) == list(range(PARTITION_LOOKS_MIN))
        room.announce("q", 1)
        await settled()
        assert woken(consumers) == list(range(2 * PARTITION_LOOKS_MIN))

    run(law)


def test_namespace_and_task_choose_queues() -> None:
    async def law(room: WaitingRoom) -> None:
        shop, mail = Wanted("group", namespace="shop"), Wanted("group", namespace="mail", task="send")
        consumers = await parked(room, shop, mail)
        room.learn("orders", "shop", "orders")
        room.announce("orders", 1)
        await settled()
        assert woken(consumers) == [0]
        # Nobody knows where this one belongs, so everybody looks.
        room.announce("unknown", 1)
        await settled()
        assert woken(consumers) == [0, 1]

    run(law)


def test_closing_sends_everybody_home_and_nobody_waits_again() -> None:
    async def law(room: WaitingRoom) -> None:
        consumers = await parked(room, Q, Wanted("group", "other"))
        room.close()
        await settled()
        assert [consumer.task.result() for consumer in consumers] == [False, False]
        assert not await room.enter(Q).until_woken(asyncio.get_running_loop().time() + FAR)

    run(law)


def test_nothing_is_remembered_of_those_who_left() -> None:
    async def law(room: WaitingRoom) -> None:
        wanted = [Wanted("group", f"q{n % 7}", None if n % 2 else f"p{n}") for n in range(1000)]
        consumers = await parked(room, *wanted, Wanted("group", namespace="shop"))
        for consumer in consumers:
            consumer.visit.abandon()
        await settled()
        for consumer in consumers:
            consumer.visit.leave()
        held = (room._lists, room._for_queue, room._for_partitions_of, room._for_partition, room._selecting)
        assert not any(held)

    run(law)


def test_time_that_the_store_named_wakes_the_first_of_the_line() -> None:
    async def law(room: WaitingRoom) -> None:
        first, second = await parked(room, Q, Q)
        second.visit.look_again_in(LOOK_SECONDS_MIN)
        async with asyncio.timeout(60):
            assert await first.task is True
        assert not second.task.done()
        first.visit.looked(1, 10)
        async with asyncio.timeout(60):
            assert await second.task is True, "what was found by time may be more than one could carry"

    run(law)


def test_earliest_of_the_times_that_were_named_counts() -> None:
    async def law(room: WaitingRoom) -> None:
        (consumer,) = await parked(room, Q)
        for seconds in (FAR, 2 * LOOK_SECONDS_MIN, FAR, None):
            consumer.visit.look_again_in(seconds)
        async with asyncio.timeout(60):
            assert await consumer.task is True

    run(law)


def test_line_that_is_empty_forgets_its_time() -> None:
    async def law(room: WaitingRoom) -> None:
        (consumer,) = await parked(room, Q)
        consumer.visit.look_again_in(FAR)
        timer = consumer.visit.waiting.timer
        assert timer is not None
        consumer.visit.abandon()
        await settled()
        consumer.visit.leave()
        assert timer.cancelled()

    run(law)
