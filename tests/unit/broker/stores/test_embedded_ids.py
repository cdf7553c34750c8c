"""Ids that producers gave: known from the moment their messages are written, and free when writing fails."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from fixtures.embedded_stores import opened
from forebay.broker.numbering import each_message
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.errors import AppendFailed, DiskFull
from forebay.model.push_run import PushRun, run_of_one
from forebay.testing.faulty_filesystem import Fail, FaultyFilesystem, FullDisk, nth

pytestmark = pytest.mark.asyncio
COUNT = 40


@pytest_asyncio.fixture
async def store(disk: FaultyFilesystem, tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await opened(tmp_path, disk=disk)
    yield store
    await store.close()


def items(numbers: Sequence[int], partitions: int = 1) -> Sequence[PushRun]:
    """For no partitions at all: one run."""
    if not partitions:
        payloads, ids = [b"%d" % number for number in numbers], [f"id-{number}" for number in numbers]
        return [PushRun.of("q", "p0", payloads, ids)]
    return [run_of_one("q", f"p{number % partitions}", b"%d" % number, f"id-{number}") for number in numbers]


async def pushed(store: EmbeddedStore, given: Sequence[PushRun]) -> list[tuple[str, int]]:
    return [(found.status, found.seq) for found in each_message(await store.push(given))]


@pytest.mark.parametrize("partitions", [0, 1, COUNT], ids=["as a run", "in one run", "one by one"])
async def test_ids_of_messages_that_could_not_be_written_are_free(
    store: EmbeddedStore, disk: FaultyFilesystem, partitions: int
) -> None:
    await store.push(items([1000], 1))
    given = items(range(COUNT), partitions)
    for plan, error in ((FullDisk(room=70), DiskFull), (nth("sync", 1, Fail(errno.EIO)), AppendFailed)):
        disk.plan = plan
        with pytest.raises(error):
            await store.push(given)
        disk.plan = lambda operation: None
        # Messages that take the numbers which the others would have had.
        await store.push([run_of_one("q", "p0", b"", "", is_minted=True)] * COUNT)
    first = 2 + 2 * COUNT
    assert await pushed(store, given) == [("queued", seq) for seq in range(first, first + COUNT)]
    assert await pushed(store, given) == [("duplicate", seq) for seq in range(first, first + COUNT)]


@pytest.mark.parametrize("partitions", [0, 1, COUNT], ids=["as a run", "in one run", "one by one"])
async def test_one_id_that_is_taken_costs_no_other_message(store: EmbeddedStore, partitions: int) -> None:
    taken = COUNT // 2
    await store.push(items([taken], partitions))
    found = await pushed(store, items(range(COUNT), partitions))
    assert found.pop(taken) == ("duplicate", 1)
    assert found == [("queued", seq) for seq in range(2, COUNT + 1)]
    assert {status for status, _ in await pushed(store, items(range(COUNT), partitions))} == {"duplicate"}


async def test_an_id_may_stand_in_two_partitions_and_only_once_in_a_push(store: EmbeddedStore) -> None:
    twice = [run_of_one("q", partition, b"1", "same") for partition in ("a", "b", "a")]
    assert await pushed(store, twice) == [("queued", 1), ("queued", 2), ("duplicate", 1)]


async def test_ids_are_known_after_a_restart(store: EmbeddedStore, tmp_path: Path) -> None:
    given = items(range(COUNT))
    first = await pushed(store, given)
    await store.close()
    again = await opened(tmp_path)
    assert await pushed(again, given) == [("duplicate", seq) for _, seq in first]
    await again.close()
