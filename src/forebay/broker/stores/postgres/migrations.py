"""The schema grows by numbered files, each run once, each in a transaction, by whichever server comes first.

A file that was released is never changed: its checksum is kept, and a database on which another text was run is
refused, as is one that a newer Forebay has migrated. Nothing is changed in either case.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

from forebay.broker.stores.postgres.connections import Connection, rows
from forebay.errors import Permanent

_ADVISORY_LOCK = 0x466F7265626179  # "Forebay"
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class SchemaRefused(Permanent):
    """The database holds a schema that this Forebay does not know. Nothing was changed in it."""


class Migration(NamedTuple):
    number: int
    name: str
    text: bytes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text).hexdigest()


def migrations() -> list[Migration]:
    """All that this Forebay knows, in order."""
    folder = files("forebay.broker").joinpath("sql/postgres/migrations")
    named = [(match, file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return sorted(Migration(int(match[1]), match[2], file.read_bytes()) for match, file in named)


async def migrate(connection: Connection, wanted: list[Migration] | None = None) -> int:
    """Bring the schema up to date; returns how many migrations ran. Servers that start together wait for each other."""
    wanted = migrations() if wanted is None else wanted
    async with connection.transaction():
        await connection.execute(b"SELECT pg_advisory_xact_lock(%b)", [_ADVISORY_LOCK])
        await connection.execute(b"CREATE SCHEMA IF NOT EXISTS forebay")
        await connection.execute(
            b"CREATE TABLE IF NOT EXISTS forebay.schema_migrations (number integer PRIMARY KEY, name text NOT NULL, "
            b"checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        applied = await rows(
            connection, b"SELECT number, name, checksum FROM forebay.schema_migrations ORDER BY number"
        )
        _check(applied, wanted)
        for migration in wanted[len(applied) :]:
            await connection.execute(migration.text, prepare=False)
            await connection.execute(
                b"INSERT INTO forebay.schema_migrations (number, name, checksum) VALUES (%b::int8::int, %b, %b)",
                [migration.number, migration.name, migration.checksum],
            )
    return len(wanted) - len(applied)


def _check(applied: list[tuple[object, ...]], wanted: list[Migration]) -> None:
    for (number, name, checksum), known in zip(applied, wanted, strict=False):
        if (number, checksum) != (known.number, known.checksum):
            raise SchemaRefused(
                f"migration {number} ({name}) of this database is not the one that this Forebay knows ({known.name})",
                remedy="Use the Forebay that made the database, or another database",
            )
    if len(applied) > len(wanted):
        raise SchemaRefused(
            f"the database is at migration {applied[-1][0]}, this Forebay knows {len(wanted)}",
            remedy="Use a Forebay at least as new as the one that migrated it",
        )
