"""The page for those who come from Queen names every method of its client, and says whether it works."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from pathlib import Path

from queen import KV, Admin, Ephemeral, Lock, Locks, Queen, Stream, TimerBuilder, Timers
from queen.builders.consume_builder import ConsumeBuilder
from queen.builders.dlq_builder import DLQBuilder
from queen.builders.operation_builder import OperationBuilder
from queen.builders.push_builder import PushBuilder
from queen.builders.queue_builder import QueueBuilder
from queen.builders.transaction_builder import (
    TransactionBuilder,
    TransactionKvBuilder,
    TransactionQueueBuilder,
    TransactionTimerBuilder,
)

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "from-queen.md"
CLASSES = (
    Queen,
    QueueBuilder,
    PushBuilder,
    ConsumeBuilder,
    OperationBuilder,
    DLQBuilder,
    TransactionBuilder,
    TransactionQueueBuilder,
    TransactionKvBuilder,
    TransactionTimerBuilder,
    Admin,
    KV,
    Locks,
    Lock,
    Timers,
    TimerBuilder,
    Ephemeral,
    Stream,
)


def public(kind: type) -> set[str]:
    found = inspect.getmembers(kind, lambda member: callable(member) or isinstance(member, property))
    return {f"{kind.__name__}.{name}" for name, _ in found if not name.startswith("_")}


def test_table_has_every_public_method_of_the_pinned_client_once() -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| .*\|$", PAGE.read_text(), re.MULTILINE)
    assert {verdict for _, verdict in rows} == {"works", "differs", "not here"}
    named = [name for methods, _ in rows for name in re.findall(r"`([\w.]+)`", methods)]
    assert len(named) == len(set(named))
    assert set(named) == set().union(*map(public, CLASSES))


def test_page_names_the_version_that_is_tried() -> None:
    assert f"`queen-mq` {importlib.metadata.version('queen-mq')}" in PAGE.read_text()
