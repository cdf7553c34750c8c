"""`kill -9` of a process that pushes, pops, acks and moves messages on the embedded store, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from forebay.broker.delivery import Verdict
from forebay.broker.messages import Acknowledgement, PopRequest
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.testing.fake_clock import FakeClock

KILLS = int(os.environ.get("FOREBAY_TEST_KILLS", "100")) // 5
GROUP = "__QUEUE_MODE__"


class Witness:
    """What the processes were told before they died."""

    def __init__(self) -> None:
        self.pushed: dict[str, list[int]] = defaultdict(list)
        self.finished: set[tuple[str, int]] = set()
        self.moved: set[tuple[str, int]] = set()

    def hear(self, line: str) -> None:
        what, *rest = line.split()
        if what == "pushed":
            self.pushed[rest[0]].append(int(rest[1]))
        elif what in ("acked", "moved"):
            self.finished.add((rest[0], int(rest[1])))
            if what == "moved":
                self.moved.add((rest[0], int(rest[1])))


def run_until_killed(directory: Path, answers: int, witness: Witness) -> None:
    program = Path(__file__).with_name("store_process.py")
    with subprocess.Popen([sys.executable, str(program), str(directory)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        lines = [process.stdout.readline() for _ in range(answers)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    for line in lines:
        if line.endswith(b"\n"):
            witness.hear(line.decode())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(2))
def test_nothing_answered_is_lost_doubled_or_reordered(part: int, tmp_path: Path) -> None:
    chance = random.Random(part)
    witness = Witness()
    for _ in range(KILLS // 2):
        run_until_killed(tmp_path / "data", chance.randint(5, 400), witness)
    asyncio.run(check(tmp_path / "data", witness))


async def check(directory: Path, witness: Witness) -> None:
    clock = FakeClock(now_us=10**17)
    store = await opened(directory, clock=clock)
    for partition in await store.partitions("work", 10, 0):
        stored = [int(m.payload) for m in await store.read("work", 1, 10**6, partition.name)]
        assert stored == list(range(len(stored))), "messages are missing, doubled or out of order"
        assert set(witness.pushed[partition.name[1:]]) <= set(stored), "a push was answered and is not there"
    done = await store.read("done", 1, 10**6)
    ids = [message.transaction_id for message in done]
    assert len(ids) == len(set(ids)), "a transaction happened twice"
    assert {f"done:{name}:{number}" for name, number in witness.moved} <= set(ids)
    await drain(store, witness, set(ids))
    await store.close()


async def drain(store: EmbeddedStore, witness: Witness, moved: set[str]) -> None:
    """What is left comes in order, and nothing that was finished comes again."""
    last: dict[str, int] = {}
    while (popped := await store.pop(PopRequest("work", batch=500, partitions=3))).messages:
        for message in popped.messages:
            name, number = message.partition[1:], int(message.payload)
            assert number > last.get(name, -1)
            last[name] = number
            assert (name, number) not in witness.finished, "acknowledged and delivered again"
            assert f"done:{message.transaction_id}" not in moved, "pushed on, but its ack is missing"
        await store.acknowledge(
            [
                Acknowledgement(m.partition_id, GROUP, popped.lease_id, Verdict(m.transaction_id, "completed"))
                for m in popped.messages
            ]
        )
    assert last
