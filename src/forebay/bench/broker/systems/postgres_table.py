"""A table in PostgreSQL, as a careful user would make it: ids that cannot come twice, payloads as bytes.

A batch is one INSERT of arrays in binary form, committed by itself: of the ways to insert many rows that psycopg
offers, the fastest that can also refuse a duplicate.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import psycopg

from forebay.bench.broker.systems.system import PushesOnly

TABLE = """
CREATE TABLE IF NOT EXISTS bench_messages (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction_id text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    created timestamptz NOT NULL DEFAULT now(),
    payload bytea NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS bench_messages_by_id ON bench_messages (partition, transaction_id);
ALTER TABLE bench_messages ALTER COLUMN payload SET STORAGE EXTERNAL
"""
INSERT_ONE = (
    "INSERT INTO bench_messages (transaction_id, partition, payload) VALUES (%s, %s, %b) ON CONFLICT DO NOTHING"
)
INSERT_MANY = (
    "INSERT INTO bench_messages (transaction_id, partition, payload) "
    "SELECT id, %s, payload FROM unnest(%b::text[], %b::bytea[]) AS given (id, payload) ON CONFLICT DO NOTHING"
)


class PostgresTable(PushesOnly):
    def __init__(self) -> None:
        self.place = "bench_messages"

    async def open(self, url: str, lanes: int) -> None:
        self._connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(lanes)]
        await self._connections[0].execute(TABLE)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def empty_place(self) -> None:
        await self._connections[0].execute("TRUNCATE bench_messages")

    def prepared(self, texts: Sequence[str], lane: int) -> list[bytes]:
        return [f'"{text}"'.encode() for text in texts]

    async def push(self, lane: int, messages: list[bytes]) -> None:
        ids = [str(uuid.uuid4()) for _ in messages]
        await self._connections[lane].execute(INSERT_MANY, (str(lane), ids, messages))
