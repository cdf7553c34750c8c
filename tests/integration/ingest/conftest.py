"""A PostgreSQL that the tests of a module share and hurt, and an empty database of each test on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from forebay.testing.servers import PostgresServer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    name = f"d{uuid.uuid4().hex}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.database_url(name)
