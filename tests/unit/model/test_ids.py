"""Minted ids: a UUID each, never the same twice, not even in a process that was forked."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from forebay.model.ids import CountedIds, minted_id, minted_ids


def test_minted_ids_never_repeat() -> None:
    assert len({minted_id() for _ in range(10_000)}) == 10_000


def test_minted_id_is_a_uuid_of_version_8() -> None:
    found = uuid.UUID(minted_id())
    assert (found.version, found.variant) == (8, uuid.RFC_4122)


def test_forked_process_mints_ids_of_its_own() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, minted_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert theirs[:23] != minted_id()[:23]


@given(first=st.integers(0, 1 << 48), count=st.integers(0, 600))
def test_numbers_are_written_as_a_format_would(first: int, count: int) -> None:
    ids, formatted = CountedIds("x-", first, count), [f"x-{number:012x}" for number in range(first, first + count)]
    assert list(ids) == [ids[place] for place in range(count)] == ids[:] == formatted
    assert (len(ids), ids.joined()) == (count, "".join(formatted))
    assert not ids.size or all(len(one) == ids.size for one in formatted)


def test_ids_of_several_threads_are_all_different() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(chain.from_iterable(pool.map(minted_ids, range(200))))
    assert len(set(ids)) == len(ids) == sum(range(200))
