"""Very many cold parcels: counted, leased in order, and all there after kill -9.

`COLD_PARCELS` says how many (50,000): the target `make test-stress` gives it a million.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.testing.running_server import RunningServer

COLD_PARCELS = int(os.environ.get("COLD_PARCELS", "50000"))
PARCELS_PER_SECOND_MIN = 500
WARM_MAX = 1_000
LEASED = 1_000
PUSHED_AT_ONCE = 10_000
DETAILED_SECONDS_MAX = 2.0


def counts(server: RunningServer) -> tuple[int, int]:
    """Parcels that wait warm, and cold."""
    with Http(server.url) as http:
        told = http.get("/api/v2/metrics/queues/detailed").json
    return sum(row["count"] for row in told["warmQueues"]), sum(row["count"] for row in told["coldQueues"])


def flood(server: RunningServer) -> None:
    with Http(server.url) as http:
        source = {"queue": "images", "parcelMessages": 1}
        body = {"source": source, "steps": [{"action": "shrink", "actionClass": "images.Shrink"}]}
        assert http.send("PUT", "/api/v1/dispatch/flows/thumbnails", body).status == 200
        for first in range(0, COLD_PARCELS, PUSHED_AT_ONCE):
            http.push("images", *range(first, min(first + PUSHED_AT_ONCE, COLD_PARCELS)))
    wait_until(lambda: sum(counts(server)) == COLD_PARCELS, 60 + COLD_PARCELS / PARCELS_PER_SECOND_MIN)


def lease_and_complete(server: RunningServer) -> list[int]:
    """The seqs of so many parcels, as they were leased."""
    seqs: list[int] = []
    with Http(server.url) as http:
        while len(seqs) < LEASED:
            body = {"worker": "w", "classes": ["images.*"], "parcels": LEASED - len(seqs), "wait": 10_000}
            told = http.post("/dispatch/lease", body)
            assert told.status == 200, told
            seqs += [parcel["ranges"][0]["firstSeq"] for parcel in told.json["parcels"]]
            outcomes = [{"did": parcel["did"], "state": "COMPLETE"} for parcel in told.json["parcels"]]
            assert http.post(f"/dispatch/leases/{told.json['leaseId']}/complete", {"outcomes": outcomes}).status == 200
    return seqs


@pytest.mark.timeout(max(300, COLD_PARCELS // 250))
def test_backlog_is_bounded_in_memory_leased_in_order_and_all_there_after_kill_9(tmp_path: Path) -> None:
    arguments = ("--dispatch-in-memory-queue-size", str(WARM_MAX), "--dispatch-metrics-time", "100ms")
    with RunningServer(tmp_path / "data", arguments=arguments) as server:
        flood(server)
        assert counts(server)[0] <= WARM_MAX
        began = time.monotonic()
        counts(server)
        assert time.monotonic() - began < DETAILED_SECONDS_MAX
        assert lease_and_complete(server) == list(range(1, LEASED + 1))
        wait_until(lambda: sum(counts(server)) == COLD_PARCELS - LEASED)
        server.kill()
        server.start()
        wait_until(lambda: sum(counts(server)) == COLD_PARCELS - LEASED)
        assert lease_and_complete(server) == list(range(LEASED + 1, 2 * LEASED + 1))
        wait_until(lambda: sum(counts(server)) == COLD_PARCELS - 2 * LEASED)
        assert server.stop() == 0
        with closing(sqlite3.connect(tmp_path / "data" / DATABASE_FILE)) as database:
            rows = dict(database.execute("SELECT state, count(*) FROM parcel_flows GROUP BY state").fetchall())
            (entries,) = database.execute("SELECT count(*) FROM cold_queue_entries").fetchone()
        assert rows["COMPLETE"] == 2 * LEASED
        assert rows["QUEUED"] <= WARM_MAX
        assert rows["COLD_QUEUED"] == entries == COLD_PARCELS - 2 * LEASED - rows["QUEUED"]
