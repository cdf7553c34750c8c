"""`kill -9` at every step of staging and committing on the embedded store: the rows are there once, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.arrow_steps import payloads
from fixtures.embedded_stores import opened
from fixtures.store_steps import item, push
from forebay.broker.bulk import StagesOf
from forebay.broker.store import Store
from forebay.errors import StageUnknown, UnknownQueue
from recovery.stage_process import ROWS

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

WHOLE = {queue: [f"{part}.{row}".encode() for row in range(ROWS)] for part, queue in enumerate(["left", "right"])}
IN_COMMIT = ["before commit 1", *[f"{when} record {number}" for number in range(1, 5) for when in ("before", "after")]]
AFTER_COMMIT = ["before files 1", "after files 1", "before answer 1"]


def killed_at(step: str, directory: Path) -> list[str]:
    """Run the process until it kills itself; returns what it was told before."""
    program = Path(__file__).with_name("stage_process.py")
    done = subprocess.run(
        [sys.executable, str(program), str(directory), step],
        capture_output=True,
        check=False,
        env={"PYTHONPATH": str(program.parents[1])},
    )
    assert done.returncode == -9, (step, done)
    return [line.split()[-1] for line in done.stdout.decode().splitlines()]


async def rows(store: Store) -> dict[str, list[bytes]]:
    found = {}
    for queue in WHOLE:
        try:
            found[queue] = await payloads(store, queue)
        except UnknownQueue:
            found[queue] = []
    return found


def files(directory: Path) -> list[str]:
    return sorted(path.stem for path in (directory / "stages").iterdir())


@pytest.mark.parametrize(
    "step", ["before stage file 2", "after stage file 2", "before stage row 2", "after stage row 2"]
)
async def test_stage_that_was_not_answered_leaves_no_message_and_no_file(step: str, tmp_path: Path) -> None:
    stages = killed_at(step, tmp_path / "data")
    store = await opened(tmp_path / "data")
    assert await rows(store) == {"left": [], "right": []}
    assert files(tmp_path / "data") == stages
    with pytest.raises(StageUnknown):
        await store.commit_stages(StagesOf("spark", "1"), [*stages, "unanswered"])
    assert (await store.commit_stages(StagesOf("spark", "1"), stages)).messages == ROWS
    assert files(tmp_path / "data") == []
    await store.close()


@pytest.mark.parametrize("step", [*IN_COMMIT, "after commit 1"])
async def test_commit_that_was_cut_short_left_nothing_and_can_be_done_again(step: str, tmp_path: Path) -> None:
    stages = killed_at(step, tmp_path / "data")
    store = await opened(tmp_path / "data")
    assert await rows(store) == {"left": [], "right": []}
    await push(store, "x", queue="left")
    again = await store.commit_stages(StagesOf("spark", "1"), stages)
    assert (again.is_repeated, again.messages) == (False, 2 * ROWS)
    assert await rows(store) == {"left": [b"x", *WHOLE["left"]], "right": WHOLE["right"]}
    await store.close()
    store = await opened(tmp_path / "data")
    assert await rows(store) == {"left": [b"x", *WHOLE["left"]], "right": WHOLE["right"]}
    assert files(tmp_path / "data") == []
    await store.close()


@pytest.mark.parametrize("step", AFTER_COMMIT)
async def test_commit_whose_answer_was_lost_is_known_when_it_is_repeated(step: str, tmp_path: Path) -> None:
    stages = killed_at(step, tmp_path / "data")
    store = await opened(tmp_path / "data")
    assert await rows(store) == WHOLE
    again = await store.commit_stages(StagesOf("spark", "1"), stages)
    assert (again.is_repeated, again.messages) == (True, 2 * ROWS)
    assert await rows(store) == WHOLE
    assert files(tmp_path / "data") == []
    assert [one.status for one in await store.push([item("y", queue="left")])] == ["queued"]
    await store.close()
