"""Minted ids: a UUID each, never the same twice, not even in a process that was forked."""

from __future__ import annotations

import os
import uuid

from forebay.model.ids import minted_id


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
