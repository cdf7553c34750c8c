"""The log of admin actions on every store: the newest first, page by page, and bounded."""

from __future__ import annotations

from functools import partial

import pytest

from forebay.access import audit
from forebay.access.values import AuditEntry
from forebay.broker.store import Store
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

LAST = 1 << 62


async def note(store: Store, subject: str, key_id: str = "k1") -> None:
    entry = AuditEntry(key_id, "root", "DELETE", "/api/v1/resources/queues/{queue}", subject, "10.0.0.7", 200)
    await store.together(partial(audit.note, entry))


async def subjects(store: Store, limit: int = 10, before: int = LAST, key_id: str = "") -> list[str]:
    return [entry.subject for entry in await store.look(partial(audit.entries, limit, before, key_id))]


async def test_action_is_kept_with_all_that_is_known_of_it(store: Store, clock: FakeClock) -> None:
    await note(store, "orders")
    (entry,) = await store.look(partial(audit.entries, 10, LAST))
    assert entry._replace(number=0) == (
        "k1",
        "root",
        "DELETE",
        "/api/v1/resources/queues/{queue}",
        "orders",
        "10.0.0.7",
        200,
        0,
        clock.now_us(),
    )


async def test_pages_go_back_in_time(store: Store) -> None:
    for number in range(5):
        await note(store, f"q{number}", f"k{number % 2}")
    first = await store.look(partial(audit.entries, 2, LAST))
    assert [entry.subject for entry in first] == ["q4", "q3"]
    assert await subjects(store, 2, first[-1].number) == ["q2", "q1"]
    assert await subjects(store, key_id="k1") == ["q3", "q1"]


async def test_long_subject_is_cut(store: Store) -> None:
    await note(store, "x" * 5_000)
    assert await subjects(store) == ["x" * audit.SUBJECT_CHARACTERS_MAX]


async def test_old_actions_and_those_beyond_the_limit_are_removed(store: Store, clock: FakeClock) -> None:
    await note(store, "old")
    clock.advance(61)
    for number in range(4):
        await note(store, f"q{number}")
    assert await store.together(partial(audit.expire, 60.0)) == 1
    assert await store.together(partial(audit.expire, 60.0, 2)) == 2
    assert await subjects(store) == ["q3", "q2"]
    assert await store.together(partial(audit.expire, 60.0, 2)) == 0
