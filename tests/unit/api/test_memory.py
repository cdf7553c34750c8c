"""Memory for all requests together: who waits, in which order, and that everything is given back."""

from __future__ import annotations

import asyncio
import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.served_app import CHUNKED, Client, on_uvloop, served, until
from fixtures.waiting import settled
from forebay.api.app import App
from forebay.api.bodies import PAYLOAD_BYTES_MAX
from forebay.api.exchange import INLINE_BYTES_MAX, ClientGone, Request, Response
from forebay.api.memory import ANSWER_BYTES_MIN, SLOW_SECONDS, Memory
from forebay.api.problems import Problem
from forebay.api.response_sizes import EXPECTED_BYTES_MIN, AnswerSizes
from forebay.api.service import Service
from forebay.broker.messages import ANSWER_BYTES_MAX, Popped, PopRequest
from forebay.broker.waiting import WaitingRoom
from forebay.model.push_run import run_of_one
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

MIB = 1 << 20


class Measured:
    """An application that reads bodies, and answers when it may."""

    def __init__(self, limit: int, response_bytes: int = 0) -> None:
        self.memory = Memory(limit)
        self.may_answer = asyncio.Event()
        self.read_bytes: list[int] = []
        self._answer_bytes = response_bytes

    async def answer(self, request: Request) -> Response | None:
        request.memory = self.memory
        try:
            self.read_bytes.append(len(await request.text()))
            await self.may_answer.wait()
        except Problem as problem:
            return Response(problem.status, headers=problem.headers)
        except ClientGone:
            return None
        finally:
            request.end()
        return Response(200, bytes(self._answer_bytes))


def head_of(size: int, *headers: str) -> bytes:
    lines = ["POST / HTTP/1.1", "Host: h", f"Content-Length: {size}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def begun(client: Client, size: int) -> None:
    """A body of which the first half is sent."""
    await client.send(head_of(size), bytes(size // 2))


# turns


async def test_turns_come_in_order_and_a_large_one_is_not_starved() -> None:
    memory = Memory(20 * MIB)
    await memory.take(12 * MIB)
    admitted: list[int] = []

    async def wait(mebibytes: int) -> None:
        await memory.take(mebibytes * MIB)
        admitted.append(mebibytes)

    waiting = [asyncio.create_task(wait(mebibytes)) for mebibytes in (16, 2, 4)]
    await asyncio.sleep(0)
    assert (admitted, memory.waiting) == ([], 3), "2 would fit, and would be the first of many"
    memory.give_back(8 * MIB)
    await settled()
    assert admitted == [16]
    memory.give_back(4 * MIB)
    await settled()
    assert (admitted, memory.used, memory.waiting) == ([16, 2], 18 * MIB, 1)
    memory.give_back(16 * MIB)
    await asyncio.gather(*waiting)
    assert (admitted, memory.used) == ([16, 2, 4], 6 * MIB)


async def test_small_body_waits_for_nobody() -> None:
    memory = Memory(10 * MIB)
    await memory.take(10 * MIB)
    large = asyncio.create_task(memory.take(2 * MIB))
    await asyncio.sleep(0)
    assert await memory.take(MIB) == MIB
    assert (memory.used, memory.waiting) == (11 * MIB, 1)
    memory.give_back(10 * MIB)
    await large


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "give", "cancel", "answer"]), st.integers(min_value=1, max_value=15)),
        max_size=60,
    )
)
def test_nothing_is_taken_twice_or_forgotten(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        memory = Memory(10 * MIB)
        held: list[int] = []
        waiting: list[asyncio.Task[None]] = []

        async def take(size: int) -> None:
            held.append(await memory.take(size))

        for step, number in steps:
            if step == "take":
                waiting.append(asyncio.create_task(take(number * MIB)))
            elif step == "answer":
                memory.take_now(number)
                held.append(number)
            elif step == "give" and held:
                memory.give_back(held.pop(number % len(held)))
            elif step == "cancel" and waiting:
                waiting[number % len(waiting)].cancel()
            if number % 2:
                await asyncio.sleep(0)
        while not all(task.done() for task in waiting):
            await asyncio.sleep(0)
            if held:
                memory.give_back(held.pop())
        for size in held:
            memory.give_back(size)
        assert (memory.used, memory.waiting) == (0, 0)

    asyncio.run(run())


async def test_who_waits_in_vain_is_told_and_lets_others_pass() -> None:
    memory = Memory(10 * MIB)
    await memory.take(6 * MIB)
    large = asyncio.create_task(memory.take(8 * MIB, seconds_max=0.02))
    await asyncio.sleep(0)
    small = asyncio.create_task(memory.take(2 * MIB))
    with pytest.raises(Problem) as told:
        await large
    assert (told.value.status, told.value.code) == (503, "busy")
    assert (await small, memory.used, memory.refused) == (2 * MIB, 8 * MIB, 1)


async def test_answers_get_smaller_when_little_is_left_and_wait_when_there_is_none() -> None:
    memory = Memory(8 * ANSWER_BYTES_MAX)
    memory.take_now(7 * ANSWER_BYTES_MAX)
    assert await memory.take_for_answer(ANSWER_BYTES_MAX) == ANSWER_BYTES_MAX
    memory.give_back(ANSWER_BYTES_MAX // 2)
    assert await memory.take_for_answer(ANSWER_BYTES_MAX) == ANSWER_BYTES_MAX // 4
    assert await memory.take_for_answer(10) == 10
    memory.take_now(2 * ANSWER_BYTES_MAX - ANSWER_BYTES_MAX // 4 - 10)
    assert memory.used == memory.limit + 3 * ANSWER_BYTES_MAX // 2
    assert await memory.take_for_answer(ANSWER_BYTES_MAX) == ANSWER_BYTES_MIN
    memory.take_now(ANSWER_BYTES_MAX // 2)
    last = asyncio.create_task(memory.take_for_answer(ANSWER_BYTES_MAX))
    await asyncio.sleep(0)
    assert (last.done(), memory.waiting) == (False, 1)
    memory.give_back(memory.used)
    assert (await last, memory.used) == (ANSWER_BYTES_MIN, ANSWER_BYTES_MIN)


def pop_of(queue: str, batch: int) -> PopRequest:
    return PopRequest(queue=queue, batch=batch)


def test_next_answer_is_expected_to_be_like_those_before_it() -> None:
    sizes = AnswerSizes()
    unknown = ANSWER_BYTES_MAX, PAYLOAD_BYTES_MAX
    assert sizes.expected(pop_of("orders", 1)) == unknown
    sizes.learn(pop_of("orders", 10), 5, 5000)
    assert sizes.expected(pop_of("orders", 10)) == (EXPECTED_BYTES_MIN, 1000)
    assert sizes.expected(pop_of("orders", 1000)) == (1_000_000, 1000)
    assert sizes.expected(pop_of("clicks", 10)) == unknown
    sizes.learn(pop_of("orders", 10), 1, MIB)
    sizes.learn(pop_of("orders", 10), 1, 10)
    assert MIB / 2 < sizes.expected(pop_of("orders", 1))[0] < MIB
    assert sizes.expected(pop_of("orders", 10_000))[0] == ANSWER_BYTES_MAX


class ReservedStore(MemoryStore):
    """Notes what pops under way may read, and what they have read, beside the memory that is taken for them."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.memory = Memory()
        self.under_way = 0
        self.given: list[list[int]] = []

    async def pop(self, request: PopRequest) -> Popped:
        self.under_way += request.bytes_max
        assert self.under_way <= self.memory.used
        await asyncio.sleep(0.01)
        popped = await super().pop(request)
        self.given.append([len(message.payload) for message in popped.messages])
        self.under_way -= request.bytes_max
        return popped


async def test_pops_read_no_more_than_was_taken_for_them_when_messages_become_large() -> None:
    """But for the last message of each."""
    store = ReservedStore()
    room = WaitingRoom(asyncio.get_running_loop())
    await store.open(room.on_available)
    clock, intake = FakeClock(), intake_of(store, FakeClock())
    dispatcher = ScriptedDispatcher()
    service = Service(store, room, clock, intake, is_started=True, dispatcher=dispatcher, memory=store.memory)
    app = App(service)

    async def pop() -> None:
        request = Request("GET", b"/api/v1/pop/queue/orders", b"batch=100")
        request.stream.end()
        answer = await app.answer(request)
        assert isinstance(answer, Response)
        assert answer.status == 200

    await store.push([run_of_one("orders", "small", b'"x"', "small")])
    await pop()
    large = b'"' + b"x" * 100_000 + b'"'
    await store.push([run_of_one("orders", f"p{n // 20}", large, f"m{n}") for n in range(100)])
    store.given.clear()
    await asyncio.gather(*[pop() for _ in range(5)])
    assert [len(sizes) for sizes in store.given] == [3] * 5
    assert all(sum(sizes[:-1]) < EXPECTED_BYTES_MIN for sizes in store.given)
    assert (store.under_way, store.memory.used) == (0, 0)


# slow clients


class Held:
    """It has moved so many bytes since second 0."""

    def __init__(self, moved_bytes: int) -> None:
        self.held_since = 0.0
        self.moved_bytes = moved_bytes
        self.has_lost = False

    def lose_room(self) -> None:
        self.has_lost = True


async def test_slow_clients_lose_their_room_when_others_wait_for_it_and_not_before() -> None:
    memory = Memory(10 * MIB)
    slow, fast = Held(9 * MIB), Held(11 * MIB)
    memory.watch(slow)
    memory.watch(fast)
    await memory.take(8 * MIB)
    memory.take_from_slow(40.0)
    assert not slow.has_lost
    waiting = asyncio.create_task(memory.take(4 * MIB))
    await asyncio.sleep(0)
    memory.take_from_slow(SLOW_SECONDS - 0.1)
    assert not slow.has_lost
    memory.take_from_slow(40.0)
    assert (slow.has_lost, fast.has_lost, memory.slow) == (True, False, 1)
    memory.give_back(8 * MIB)
    assert await waiting == 4 * MIB


@on_uvloop
async def test_slow_body_is_refused_when_another_waits_for_its_room() -> None:
    app = Measured(10 * MIB)
    app.may_answer.set()
    async with served(app) as server:
        slow, other = await server.client(), await server.client()
        await begun(slow, 8 * MIB)
        await until(lambda: app.memory.used == 8 * MIB)
        await other.send(head_of(8 * MIB))
        await until(lambda: app.memory.waiting)
        app.memory.take_from_slow(asyncio.get_running_loop().time() + 60)
        told = await slow.answer()
        assert (told.status, told.headers["connection"]) == (408, "close")
        await other.send(bytes(8 * MIB))
        assert (await other.answer()).status == 200
        assert (app.memory.used, app.memory.unasked) == (0, 0)


@on_uvloop
async def test_body_that_takes_longer_than_allowed_is_refused() -> None:
    memory = Memory(10 * MIB)

    async def answer(request: Request) -> Response:
        request.memory = memory
        request.body_seconds_max = 0.05
        try:
            await request.text()
        except Problem as problem:
            return Response(problem.status, headers=problem.headers)
        finally:
            request.end()
        return Response(200)

    async with served(answer) as server:
        client = await server.client()
        await client.send(head_of(1000), b"x")
        assert (await client.answer()).status == 408
        assert await client.rest() == b""
        assert memory.used == 0


@on_uvloop
async def test_slow_reader_of_an_answer_is_cut_off_when_others_wait_for_its_room() -> None:
    app = Measured(64 * MIB, response_bytes=60 * MIB)
    app.may_answer.set()
    async with served(app) as server:
        slow = await server.client()
        await slow.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: app.memory.used > 40 * MIB)
        waiting = asyncio.create_task(app.memory.take(60 * MIB))
        await until(lambda: app.memory.waiting)
        app.memory.take_from_slow(asyncio.get_running_loop().time() + 600)
        assert await waiting == 60 * MIB
        assert (await slow.rest()) is not None
        assert app.memory.used == 60 * MIB


# bodies


@on_uvloop
async def test_body_without_room_is_not_read_until_another_is_answered() -> None:
    app = Measured(10 * MIB)
    async with served(app) as server:
        clients = [await server.client() for _ in range(3)]
        for client in clients:
            await begun(client, 4 * MIB)
        await until(lambda: app.memory.waiting == 1)
        assert app.memory.used == 8 * MIB
        # Beside each other: how much of a body that is not read the kernel takes is its own business.
        sending = [asyncio.create_task(client.send(bytes(2 * MIB))) for client in clients]
        await until(lambda: len(app.read_bytes) == 2)
        assert (app.memory.used, app.memory.waiting) == (8 * MIB, 1)
        app.may_answer.set()
        await asyncio.gather(*sending)
        assert [(await client.answer()).status for client in clients] == [200] * 3
        assert (app.read_bytes, app.memory.used) == ([4 * MIB] * 3, 0)


@on_uvloop
async def test_room_of_a_client_that_has_gone_is_given_back() -> None:
    app = Measured(5 * MIB)
    async with served(app) as server:
        gone, other = await server.client(), await server.client()
        await begun(gone, 4 * MIB)
        await until(lambda: app.memory.used == 4 * MIB)
        await begun(other, 4 * MIB)
        await until(lambda: app.memory.waiting)
        gone.close()
        await until(lambda: not app.memory.waiting)
        other.close()
        await until(lambda: not app.memory.used)


@on_uvloop
async def test_large_compressed_body_takes_room_for_what_it_becomes() -> None:
    app = Measured(512 * MIB)
    text = random.Random(1).randbytes(3 * MIB)
    packed = gzip.compress(text)
    async with served(app) as server:
        client = await server.client()
        await client.send(head_of(len(packed), "Content-Encoding: gzip"))
        await until(lambda: app.memory.used == 64 * MIB + len(packed))
        await client.send(packed)
        await until(lambda: app.read_bytes == [len(text)])
        assert app.memory.used == len(text)
        app.may_answer.set()
        assert (await client.answer()).status == 200
        assert app.memory.used == 0


@on_uvloop
async def test_small_bodies_keep_nobody_out_whatever_they_might_become() -> None:
    """In chunks, or compressed: a body behind its head, as most clients send it."""
    app = Measured(64 * MIB)
    packed = gzip.compress(b"x" * 1000)
    async with served(app) as server:
        clients = [await server.client() for _ in range(20)]
        for client in clients[:10]:
            await client.send(CHUNKED, b"3e8\r\n")
        for client in clients[10:]:
            await client.send(head_of(len(packed), "Content-Encoding: gzip"))
        await until(lambda: server.connections.app.memory.unasked == 0)
        for client in clients[:10]:
            await client.send(b"x" * 1000 + b"\r\n0\r\n\r\n")
        for client in clients[10:]:
            await client.send(packed)
        await until(lambda: app.read_bytes == [1000] * 20)
        assert (app.memory.used, app.memory.waiting) == (20 * 1000, 0)
        app.may_answer.set()
        assert [(await client.answer()).status for client in clients] == [200] * 20
        assert app.memory.used == 0


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(("size", "is_waiting"), [(INLINE_BYTES_MAX, False), (INLINE_BYTES_MAX + 1, True)])
@on_uvloop
async def test_small_body_that_becomes_large_needs_room(size: int, is_waiting: bool, is_late: bool) -> None:
    app = Measured(64 * MIB)
    app.memory.take_now(1)
    app.may_answer.set()
    packed = gzip.compress(bytes(size))
    async with served(app) as server:
        client = await server.client()
        head = head_of(len(packed), "Content-Encoding: gzip")
        await client.send(*((head, packed) if is_late else (head + packed,)))
        if is_waiting:
            await until(lambda: app.memory.waiting)
            assert app.read_bytes == []
            app.memory.give_back(1)
        assert (await client.answer()).status == 200
        assert app.read_bytes == [size]


@on_uvloop
async def test_bytes_of_small_bodies_count_as_they_arrive_and_are_refused_when_there_is_no_room() -> None:
    """Chunks announce nothing: the room that is left decides how many may be on their way."""
    app = Measured(8 * MIB)
    app.may_answer.set()
    half = MIB // 2
    async with served(app) as server:
        clients = [await server.client() for _ in range(20)]
        for client in clients:
            await client.send(CHUNKED, b"%x\r\n" % half + bytes(half) + b"\r\n")
        await until(lambda: app.memory.used == 20 * half)
        assert app.memory.used == 10 * MIB == app.memory.limit_without_waiting
        assert app.memory.refused == 0
        late = await server.client()
        await late.send(CHUNKED, b"%x\r\n" % half + bytes(half) + b"\r\n")
        assert (await late.answer()).status == 503
        await clients[0].send(b"0\r\n\r\n")
        assert (await clients[0].answer()).status == 200
        assert app.memory.used == 10 * MIB - half
        for client in clients[1:]:
            client.vanish()
        await until(lambda: not app.memory.used)


@on_uvloop
async def test_what_comes_behind_a_request_that_is_not_answered_is_counted_and_given_back() -> None:
    app = Measured(64 * MIB)
    async with served(app) as server:
        client = await server.client()
        await client.send(
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", head_of(50_000) + bytes(50_000), head_of(9000) + bytes(10)
        )
        await until(lambda: app.memory.unasked == 50_010)
        app.may_answer.set()
        client.vanish()
        await until(lambda: not app.memory.unasked and not app.memory.used)


@on_uvloop
async def test_body_above_the_limit_takes_no_more_than_the_limit() -> None:
    app = Measured(512 * MIB)
    async with served(app) as server:
        client = await server.client()
        await client.send(head_of(65 * MIB))
        await until(lambda: app.memory.used == 64 * MIB)
        await client.send(bytes(65 * MIB))
        assert (await client.answer()).status == 413
        assert app.memory.used == 0


# answers


@on_uvloop
async def test_answer_counts_until_its_client_has_taken_it() -> None:
    app = Measured(64 * MIB, response_bytes=20 * MIB)
    app.may_answer.set()
    async with served(app) as server:
        client = await server.client()
        await client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: app.memory.used > 10 * MIB)
        assert len((await client.answer()).body) == 20 * MIB
        await until(lambda: not app.memory.used)
        await client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: app.memory.used > 10 * MIB)
        client.writer.transport.abort()
        await until(lambda: not app.memory.used)
