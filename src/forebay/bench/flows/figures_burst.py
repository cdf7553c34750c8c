"""A burst of ten times what may wait warm: it goes cold, drains, and memory stays where it was."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from forebay.bench.flows.plan import BURST_TIMES, WARM_PARCELS, FlowsPlan
from forebay.bench.harness import Figure, at_most
from forebay.bench.memory import LOOK_SECONDS, PeakMemory
from forebay.bench.spark import rows
from forebay.bench.spark.up_process import UpProcess
from forebay.client import Client
from forebay.errors import Transient
from forebay.testing.servers.machine import descendants

FINISHED = ("COMPLETE", "FILTERED")
SECONDS_MAX = 600.0
PARCELS_LISTED_MAX = 100_000
_SQL = " ".join(rows.SQL.split())
SETTINGS = f"""
dispatch: {{in_memory_queue_size: {WARM_PARCELS}}}
"""
FLOW = f"""
  - name: burst
    source: {{{{queue: burst, parcel_messages: {{parcel_messages}}}}}}
    actions:
      - name: slow
        sql: {_SQL}
    sink: {{{{queue: burst-out}}}}
"""


def figures(up: UpProcess, plan: FlowsPlan) -> Iterator[Figure]:
    burst = _Burst(up, plan.parcel_messages)
    usual = burst.run(WARM_PARCELS)
    largest = burst.run(WARM_PARCELS * BURST_TIMES)
    if not burst.were_cold:
        raise Transient("nothing of the burst went cold: it was worked off faster than it was pushed")
    note = f"{WARM_PARCELS * BURST_TIMES} parcels of {plan.parcel_messages}, {WARM_PARCELS} of them warm"
    for number, name in enumerate(("server", "worker, all of its processes")):
        yield at_most(
            1.5,
            f"memory of the {name}: a burst goes cold and drains",
            "MiB",
            partial(largest.__getitem__, number),
            "a tenth of it, which stays warm",
            partial(usual.__getitem__, number),
            rounds=1,
            note=note,
        )


class _Burst:
    """Loads of so many parcels, and the most memory that server and worker had meanwhile."""

    def __init__(self, up: UpProcess, parcel_messages: int) -> None:
        self._up = up
        self._parcel_messages = parcel_messages
        self._pushed = 0
        self.were_cold = False

    def run(self, parcels: int) -> tuple[float, float]:
        """Push them at once, and wait until all are done; MiB of server and worker."""
        messages = parcels * self._parcel_messages
        parts = {name: partial(_part, self._up.pid, name.encode()) for name in ("serve", "worker")}
        with Client(self._up.url) as client, PeakMemory(**parts) as memory:
            rows.fill(self._up.url, "burst", messages)
            self._pushed += messages
            deadline = time.monotonic() + SECONDS_MAX
            while not self._is_done(client):
                if time.monotonic() > deadline:
                    raise Transient(f"{parcels} parcels were not done within {SECONDS_MAX:g} s")
                time.sleep(LOOK_SECONDS)
        return memory.mib["serve"], memory.mib["worker"]

    def _is_done(self, client: Client) -> bool:
        self.were_cold |= bool(client.parcels(flow="burst", state="COLD_QUEUED", limit=1))
        found = client.parcels(flow="burst", limit=PARCELS_LISTED_MAX)
        finished: int = sum(one["messages"] for one in found if one["state"] in FINISHED)
        return finished >= self._pushed


def _part(up_pid: int, command: bytes) -> list[int]:
    """Of `forebay up`, the process that runs this command, and its descendants."""
    for pid in descendants(up_pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:4] == [b"-m", b"forebay", command]:
                return [pid, *descendants(pid)]
    return []
