"""Our own client against a started server: every call, failover, and answers that get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from fixtures.running_stores import any_server, fresh, shared_postgres_database
from forebay.client import (
    Address,
    AsyncClient,
    Client,
    OutcomeUnknown,
    Refused,
    TransactionFailed,
    Unreachable,
    arrow,
    parse_address,
)
from forebay.testing.running_server import RunningServer

__all__ = ["any_server", "shared_postgres_database"]


def test_addresses_are_read_and_nonsense_is_refused() -> None:
    assert parse_address("orders") == Address("orders")
    assert parse_address("orders/eu@billing") == Address("orders", "eu", "billing")
    assert parse_address("user:events@dashboard") == Address("user:events", None, "dashboard")
    for wrong in ("", "@g", "q@", "q/", "/p"):
        with pytest.raises(ValueError, match="is no address"):
            parse_address(wrong)


async def test_push_to_a_group_is_refused(any_server: RunningServer) -> None:
    """It would go to the queue before the `@`, which is perhaps not the one that was meant."""
    async with AsyncClient(any_server.url) as client:
        for push in (
            client.push("ops@example.org", 1),
            client.push_many("ops@example.org", [1]),
            client.push(Address("ops", None, "billing"), 1),
        ):
            with pytest.raises(ValueError, match="a push is for all groups"):
                await push
        with pytest.raises(ValueError, match="a push is for all groups"):
            client.transaction().push("ops@example.org", [1])
        with pytest.raises(Refused, match="no queue"):
            _ = [message async for message in client.read("ops")]


async def test_push_take_ack_and_groups(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        first = await client.push(f"{queue}/eu", {"n": 0}, trace_id="3f0e4a4e-0000-4000-8000-000000000001")
        assert (first.status, first.seq) == ("queued", 1)
        answers = await client.push_many(f"{queue}/eu", [{"n": n} for n in range(1, 5)])
        assert [answer.seq for answer in answers] == [2, 3, 4, 5]
        for group in ("a", "b"):
            seen = []
            async for message in client.take(f"{queue}@{group}", batch=2, wait=False):
                seen.append(message.data["n"])
                assert await client.ack(message)
            assert seen == [0, 1, 2, 3, 4]
        assert await client.pop(f"{queue}@a") == []


async def test_a_given_id_is_stored_once(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        statuses = [(await client.push(queue, n, transaction_id="same")).status for n in range(3)]
        assert statuses == ["queued", "duplicate", "duplicate"]


async def test_a_lost_lease_is_told(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        await client.push(queue, 1)
        (message,) = await client.pop(queue)
        assert await client.renew(message, seconds=120)
        assert await client.ack(message)
        assert not await client.ack(message)
        assert not await client.renew(message)


async def test_a_delivery_that_is_answered_as_a_whole_is_finished(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        for partition in ("a", "b"):
            await client.push_many(f"{queue}/{partition}", [{"n": n} for n in range(3)])
        found = await client.pop(queue, batch=9, partitions=2)
        assert [message.delivered_together for message in found] == [6] * 6
        assert sorted((message.partition, message.data["n"]) for message in found) == [
            (partition, n) for partition in "ab" for n in range(3)
        ]
        assert await client.ack(found[::-1])
        assert not await client.ack(found)
        assert await client.pop(queue, partitions=2) == []


async def test_deliveries_that_are_answered_at_the_same_time_are_each_answered(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        for partition in range(9):
            await client.push_many(f"{queue}/{partition}", [partition] * 3)
        found = [await client.pop(queue, batch=3) for _ in range(9)]
        assert await client.ack(found[4])
        taken = await asyncio.gather(*[client.ack(delivery) for delivery in found])
        assert taken == [number != 4 for number in range(9)]
        assert await client.pop(queue, batch=3) == []


async def test_an_answer_for_some_is_no_answer_for_all(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        await client.configure(queue, {"retryDelay": 0})
        await client.push_many(queue, ["a", "b", "c"])
        first, second, third = await client.pop(queue, batch=3)
        assert not await client.ack([first, second, second])
        assert await client.ack(third, "failed")
        assert [message.data for message in await client.pop(queue, batch=3)] == ["c"]


async def test_what_was_answered_before_makes_the_whole_answer_false(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        await client.push_many(queue, ["a", "b"])
        found = await client.pop(queue, batch=2)
        assert await client.ack(found[0])
        assert not await client.ack(found)
        assert await client.pop(queue, batch=2) == []


async def test_a_transaction_moves_a_message_or_does_nothing(any_server: RunningServer) -> None:
    source, target = fresh("source"), fresh("target")
    async with AsyncClient(any_server.url) as client:
        await client.push(source, {"id": 1})
        (message,) = await client.pop(source)
        await client.transaction().ack(message).push(target, {"id": 1, "done": True}).commit()
        with pytest.raises(TransactionFailed, match=r"lease|not found"):
            await client.transaction().push(target, {"id": 2}).ack(message).commit()
        assert [found.data async for found in client.take(target, wait=False, auto_ack=True)] == [
            {"id": 1, "done": True}
        ]


async def test_message_whose_handler_raises_comes_again_before_those_behind_it(
    any_server: RunningServer,
) -> None:
    queue = fresh()
    seen: list[int] = []

    async def handler(message: object) -> None:
        seen.append(message.data)  # type: ignore[attr-defined]
        if message.data == 1:  # type: ignore[attr-defined]
            raise ValueError("one is bad")

    async with AsyncClient(any_server.url) as client:
        await client.configure(queue, {"retryLimit": 1, "retryDelay": 0})
        await client.push_many(queue, [0, 1, 2])
        await client.consume(queue, handler, batch=3, wait=False)
        assert seen == [0, 1, 1, 2]
        letters = await client.get("/api/v1/dlq", {"queue": queue})
        assert [letter["errorMessage"] for letter in letters["messages"]] == ["ValueError: one is bad"]


async def test_seek_reads_again_and_the_queue_is_a_table(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        await client.push_many(queue, [{"n": n} for n in range(6)])

        async def rest() -> list[int]:
            return [m.data["n"] async for m in client.take(f"{queue}@g", batch=10, wait=False, auto_ack=True)]

        assert await rest() == [0, 1, 2, 3, 4, 5]
        await client.seek(f"{queue}@g", seq=4)
        assert await rest() == [3, 4, 5]
        await client.seek(f"{queue}@g", time=datetime.now(UTC) - timedelta(hours=1))
        assert len(await rest()) == 6
        now = datetime.now(UTC)
        for target, figures in (
            ({"seq": 3}, (3, 0, 4)),
            ({"to_end": True}, (7, 0, 0)),
            ({"time": now - timedelta(hours=1)}, (1, 0, 6)),
        ):
            told = await client.preview_seek(f"{queue}@g", **target)
            assert (told["fromSeq"], told["skipped"], told["repeated"]) == figures
        assert (await client.preview_seek(f"{queue}/nowhere@g", seq=1))["partitions"] == 0
        await client.seek(f"{queue}@g", seq=1)
        await client.seek(f"{queue}@g", to_end=True)
        assert await rest() == []
        table = await client.read_arrow(queue, 2, limit=3)
        assert table.column("seq").to_pylist() == [2, 3, 4]
        assert table.column("payload").to_pylist() == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


async def test_rows_are_written_once_however_often_they_are_committed(any_server: RunningServer) -> None:
    queue = fresh()
    rows = pa.table({"payload": [f'{{"n":{n}}}' for n in range(1000)], "partition": [f"p{n % 3}" for n in range(1000)]})
    async with AsyncClient(any_server.url) as client:
        aborted = await client.stage(queue, rows, producer=queue, epoch=0)
        assert await client.abort(producer=queue, epoch=0) == len(aborted) == 1
        for is_repeated in (False, True):
            stages = await client.stage(queue, rows, producer=queue, epoch=1, part="7")
            done = await client.commit(stages, producer=queue, epoch=1)
            assert (done.already, done.messages, done.queues[queue].last_seq) == (is_repeated, 1000, 1000)
        table = await client.read_arrow(queue)
        assert table.column("payload").to_pylist() == [text.encode() for text in rows.column("payload").to_pylist()]
        narrow = [batch async for batch in client.iter_arrow(queue, 10, 20, partitions=["p1"])]
        assert [seq for batch in narrow for seq in batch.column("seq").to_pylist()] == [11, 14, 17, 20]
        (message,) = await client.pop(f"{queue}/p1")
        assert message.data == {"n": 1}


async def test_writes_of_one_epoch_are_told_apart_by_their_names(any_server: RunningServer) -> None:
    queue, once = fresh(), {"producer": fresh("producer"), "epoch": "1"}
    async with AsyncClient(any_server.url) as client:
        for write, payload in (("", "1"), ("late", "2"), ("late", "2")):
            stages = await client.stage(queue, pa.table({"payload": [payload]}), **once, write=write)
            done = await client.commit(stages, **once, write=write, queue=queue)
            assert done.queues[queue].first_seq == int(payload)
        other = await client.stage(queue, pa.table({"payload": ["3"]}), **once, write="late")
        with pytest.raises(Refused, match="If it is another write of the same batch, name it") as refused:
            await client.commit(other, **once, write="late")
        assert refused.value.status == 409
        unwanted = await client.stage(queue, pa.table({"payload": ["4"]}), **once, write="never")
        assert await client.abort(**once, write="never", queue="elsewhere") == 0
        assert await client.abort(**once, write="never", queue=queue) == len(unwanted)
        empty = await client.commit([], **once, write="nothing", queue=queue)
        assert (empty.already, empty.messages) == (False, 0)
        assert (await client.read_arrow(queue)).column("payload").to_pylist() == [b"1", b"2"]


async def test_queue_that_is_made_again_while_it_is_read_is_told(
    any_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "PIECE_BYTES", 1)
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        await client.push_many(queue, [1, 2, 3])
        reading = client.iter_arrow(queue)
        assert (await anext(reading)).column("seq").to_pylist() == [1]
        await client.delete_queue(queue)
        await client.push_many(queue, [4, 5, 6])
        with pytest.raises(Refused, match="deleted and made again"):
            await anext(reading)


async def test_large_table_is_read_and_written_in_pieces(
    any_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = fresh()
    monkeypatch.setattr(arrow, "STAGE_BYTES", 10_000)
    monkeypatch.setattr(arrow, "PIECE_BYTES", 7_000)
    rows = pa.table({"payload": [b'"%s"' % (b"%04d" % n * 20) for n in range(1000)]})
    async with AsyncClient(any_server.url) as client:
        stages = await client.stage(queue, rows, producer=queue, epoch=1)
        assert len(stages) > 5
        await client.commit(stages, producer=queue, epoch=1)
        table = await client.read_arrow(queue)
        assert table.column("seq").to_pylist() == list(range(1, 1001))
        assert table.column("payload").to_pylist() == rows.column("payload").to_pylist()


async def test_a_waiting_consumer_is_woken_by_a_push(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient(any_server.url) as client:
        waiting = asyncio.create_task(client.pop(queue, wait=True, timeout=30))
        await client.push(queue, "wake up")
        (message,) = await asyncio.wait_for(waiting, 20)
        assert message.data == "wake up"


async def test_what_is_wrong_is_refused_and_not_retried(any_server: RunningServer) -> None:
    async with AsyncClient(any_server.url, attempts=50) as client:
        with pytest.raises(Refused, match=r"options\.colour") as refused:
            await client.configure(fresh(), {"colour": "blue"})
        assert refused.value.status == 400


async def test_a_dead_server_is_left_out_for_the_next_one(any_server: RunningServer) -> None:
    queue = fresh()
    async with AsyncClient("http://127.0.0.1:9", any_server.url, first_pause_seconds=0.01) as client:
        await client.push(queue, 1)
        assert (await client.pop(queue))[0].data == 1
    async with AsyncClient("http://127.0.0.1:9", attempts=2, first_pause_seconds=0.01) as client:
        with pytest.raises(Unreachable, match="failed 2 times"):
            await client.push(queue, 2)


@asynccontextmanager
async def losing_proxy(url: str, losses: int) -> AsyncIterator[str]:
    """A proxy that lets requests through and, so many times, cuts the connection instead of passing the answer on."""
    left = losses
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        parts = urlsplit(url)
        server_reader, server_writer = await asyncio.open_connection(parts.hostname, parts.port)
        requests = asyncio.create_task(pump(reader, server_writer))
        await answers(server_reader, writer)
        requests.cancel()
        server_writer.close()
        writer.close()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        while data := await reader.read(65536):
            if left > 0:
                left -= 1
                return
            writer.write(data)
            await writer.drain()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*filter(None, serving))


async def test_an_answer_that_is_lost_stores_nothing_twice(any_server: RunningServer) -> None:
    queue = fresh()
    async with (
        losing_proxy(any_server.url, 2) as url,
        AsyncClient(url, first_pause_seconds=0.01) as client,
    ):
        answer = await client.push(queue, "once")
        assert answer.status == "duplicate"
        assert [message.data async for message in client.take(queue, wait=False, auto_ack=True)] == ["once"]


async def test_a_transaction_whose_answer_is_lost_is_not_said_to_have_failed(any_server: RunningServer) -> None:
    source, target = fresh("source"), fresh("target")
    async with (
        losing_proxy(any_server.url, 1) as url,
        AsyncClient(any_server.url) as direct,
        AsyncClient(url, first_pause_seconds=0.01) as client,
    ):
        await direct.push(source, 1)
        (message,) = await direct.pop(source)
        with pytest.raises(OutcomeUnknown, match="may or may not"):
            await client.transaction().push(target, 1).ack(message).commit()
        assert [found.data async for found in direct.take(target, wait=False, auto_ack=True)] == [1]


def test_the_client_without_async_does_the_same(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server, Client(server.url) as client:
        client.configure("orders")
        client.configure("done", {"retryLimit": 0})
        client.push_many("orders/eu", [1, 2, 3])
        (message,) = client.pop("orders@g")
        client.transaction().ack(message).push("done", 1).commit()
        taken = [found.data for found in client.take("orders@g", batch=2, wait=False, auto_ack=True)]
        assert taken == [2, 3]

        def handler(found: object) -> None:
            raise RuntimeError("no")

        client.consume("done", handler, wait=False)
        assert client.get("/api/v1/dlq")["total"] == 1
        assert client.read_arrow("orders").num_rows == 3
        stages = client.stage("orders", pa.table({"payload": ["4"]}), producer="p", epoch=1)
        server.kill()
        server.start()
        assert client.read_arrow("orders").num_rows == 3, "the server was killed with -9"
        assert client.commit(stages, producer="p", epoch=1).messages == 1
        server.kill()
        server.start()
        assert client.commit(stages, producer="p", epoch=1).already
        assert sum(batch.num_rows for batch in client.iter_arrow("orders")) == 4
        assert client.abort(producer="p", epoch=1) == 0
