"""Reads back what the demo's queues and Parquet hold, and compares it with what plain Python computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from forebay.cli.demo.clicks import Clicks, Counted, Minute, minute_text
from forebay.cli.demo.result import Comparison, Latency, compare, latency_of
from forebay.client import AsyncClient

ROWS_SHOWN = 5
PARCELS_MAX = 100_000
# Spark writes times without their zone, which is UTC.
COUNTED = pa.schema(
    [("minute", pa.timestamp("us", tz="UTC")), ("region", pa.string()), ("clicks", pa.int64()), ("ms", pa.int64())]
)


class Findings(NamedTuple):
    pushed: Comparison
    joined: Comparison
    per_minute: Comparison
    parquet: Comparison
    scored: Comparison
    latency: Latency | None
    rows: list[dict[str, Any]]


async def findings(client: AsyncClient, parquet: Path, clicks: Clicks, paced_from: int) -> Findings:
    """`paced_from`: the first click that was pushed while the flows ran; latencies count from there."""
    pushed = [row async for row in _messages(client, "clicks")]
    joined = [row async for row in _messages(client, "clicks-joined")]
    counted = [row async for row in _messages(client, "clicks-per-minute")]
    scored = [row async for row in _messages(client, "clicks-scored")]
    archived = table_of(parquet).to_pylist()
    when = {row.value["n"]: row.created_us for row in pushed}
    waited = (
        (row.created_us - when[n]) / 1_000_000 for row in joined if (n := row.value["n"]) >= paced_from and n in when
    )
    expected = clicks.per_minute()
    return Findings(
        pushed=compare(clicks.pushed(), ((row.value["n"], row.value) for row in pushed)),
        joined=compare(clicks.joined(), ((row.value["n"], row.value) for row in joined)),
        per_minute=compare(expected, _minutes(row.value for row in counted)),
        parquet=compare(expected, _minutes({**row, "minute": minute_text(row["minute"])} for row in archived)),
        scored=compare(clicks.scored(), ((row.value["n"], row.value) for row in scored)),
        latency=latency_of(waited),
        rows=sorted(archived, key=lambda row: (row["minute"], row["region"]))[:ROWS_SHOWN],
    )


async def parcel_states(client: AsyncClient) -> dict[str, int]:
    """How many parcels there are, by state."""
    found = await client.parcels(limit=PARCELS_MAX)
    return dict(Counter(one["state"] for one in found))


class _Message(NamedTuple):
    created_us: int
    value: dict[str, Any]


async def _messages(client: AsyncClient, queue: str) -> AsyncIterator[_Message]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    async for batch in client.iter_arrow(queue):
        created = batch.column("created_at").cast(pa.int64()).to_pylist()
        payloads = batch.column("payload").to_pylist()
        for created_us, payload in zip(created, payloads, strict=True):
            yield _Message(created_us, decode(payload))


def _minutes(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Minute, Counted]]:
    for row in rows:
        yield Minute(row["minute"], row["region"]), Counted(row["clicks"], row["ms"])


def table_of(parquet: Path) -> pa.Table:
    """What the folder holds, read as any program would: a flow moves files into it when their batch is whole."""
    tables = [pq.read_table(file).cast(COUNTED) for file in sorted(parquet.glob("*.parquet"))]
    return pa.concat_tables(tables) if tables else COUNTED.empty_table()
