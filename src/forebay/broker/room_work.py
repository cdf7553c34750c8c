"""Another room's statements in the store's own transaction.

Dispatch keeps its tables in the store's database, and its changes have to be committed together with the store's own:
a completed lease moves parcels *and* turns staged rows into messages, or does neither. The store does not know those
tables, and the room does not know connections. So work is a generator: it yields *steps*, and gets back what came of
each. The store drives it:

| store      | `together`                                             | `look`                                         |
|------------|--------------------------------------------------------|------------------------------------------------|
| embedded   | in the store's thread, in a savepoint of a cycle       | in another thread, on a connection that reads  |
| PostgreSQL | one transaction on a connection of the rooms' own pool | the same; nothing is there to be committed     |
| memory     | on a SQLite database in memory                         | the same                                       |

What `together` did is on the disk when it returns. Work may be begun again after a rollback (a deadlock, a queue that
had to be made first), so it has no effect but its steps. What it raises rolls all of it back.

A statement is one text for both databases, in a file of its own (`Statements`):

- parameters are `:name`; whole numbers, text, None, or a list: lists are passed as JSON, as rows of
  `forebay.each(:rows)`, whose column `value` is one item: `value ->> 0` is the first field of an item that is itself a
  list, as text.
- tables are named `forebay.parcels`: the prefix is dropped for SQLite.
- a line that begins with `--pg ` is for PostgreSQL alone, one that begins with `--lite ` for SQLite alone.
- `RETURNING` and `ON CONFLICT` mean the same in both; casts are written `CAST(x AS bigint)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import msgspec

from forebay.broker.bulk import StagesOf

T = TypeVar("T")
Value = int | str | float | None | Sequence[object]


class Statement(NamedTuple):
    """A named statement in the forms that the two databases take."""

    name: str
    sqlite: str
    """With `:name` for parameters."""
    postgres: bytes
    """With `%(name)b` for parameters; the lists among them are text."""


class Ask(NamedTuple):
    """Run a statement; what comes back is its rows, as tuples. Integers and text only, also in PostgreSQL."""

    statement: Statement
    values: Mapping[str, Value] = {}


class Now(NamedTuple):
    """The store's time, in microseconds: the same all through the work."""


class QueueEdge(NamedTuple):
    """Where a queue's log ends: comes back as `Edge`, or as None where there is no such queue."""

    queue: str


class Edge(NamedTuple):
    queue_id: int
    """Never used twice: a queue of the same name that is made again has another one."""
    first_seq: int
    """The first message that may still be read."""
    next_seq: int
    """What the next message gets; every one before it is committed."""
    identity: str
    """As `QueueBounds.identity`: what readers name the queue by that is meant."""


class QueueGaps(NamedTuple):
    """What is gone of a queue: comes back as `Gaps`, or as None where there is no such queue."""

    queue: str
    first_seq: int
    last_seq: int


class Gaps(NamedTuple):
    removed_seq: int
    """The last message that retention, or a person, has removed with all before it in its partition; 0: none."""
    lost: int
    """How many messages are known to be lost of those between the two seqs; at most as many as there are seqs."""


class GroupEdge(NamedTuple):
    """How far a group is in a partition: comes back as `Passed`, or as None where there is no such queue."""

    queue: str
    group: str
    partition: str


class Passed(NamedTuple):
    queue_id: int
    next_seq: int | None
    """The group is done with everything in the partition before it: with each message, or the message is gone. None:
    there is no such group."""


class DeadSeqs(NamedTuple):
    """The seqs of a group's dead letters in a partition, between two seqs, both included, up to so many of them."""

    queue: str
    group: str
    partition: str
    first_seq: int
    last_seq: int
    limit: int


class CommitStages(NamedTuple):
    """Turn stages into messages as `Store.commit_stages` does; comes back as `CommitOutcome`."""

    wanted: StagesOf
    stage_ids: Sequence[str]


class DropStages(NamedTuple):
    """Forget what a producer has staged for an epoch and not committed."""

    wanted: StagesOf


class TryAlone(NamedTuple):
    """Do other work in a savepoint: its result comes back, or the exception that rolled it back, as a value."""

    work: Callable[[], Work[Any]]


Step = Ask | Now | QueueEdge | QueueGaps | GroupEdge | DeadSeqs | CommitStages | DropStages | TryAlone
Work = Generator[Step, Any, T]


class Statements:
    """The statements of a room: `sql/<name>.sql` in its package, each with a first line that says what it is for."""

    def __init__(self, package: str) -> None:
        self._folder = files(package).joinpath("sql")

    @cache  # noqa: B019 -- a room has one of these, for as long as the process runs
    def __getitem__(self, name: str) -> Statement:
        return statement(name, self._folder.joinpath(f"{name}.sql").read_text())


_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")


def statement(name: str, text: str) -> Statement:
    """From the text that stands for both databases."""
    lines = text.splitlines()
    lite = "\n".join(line.removeprefix("--lite ") for line in lines if not line.startswith("--pg "))
    full = "\n".join(line.removeprefix("--pg ") for line in lines if not line.startswith("--lite "))
    lite = lite.replace("forebay.each(", "json_each(").replace("forebay.", "")
    escaped = full.replace("%", "%%")
    return Statement(name, lite, _PARAMETER.sub(r"%(\1)b", escaped).encode())


def drive(work: Work[T], do: Callable[[Step], Any]) -> T:
    """Run work to its end where steps are done at once. What a step raises ends the work."""
    try:
        step = next(work)
        while True:
            step = work.send(do(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        work.close()


def sqlite_values(values: Mapping[str, Value]) -> dict[str, object]:
    """As SQLite takes them."""
    return {name: packed(value) for name, value in values.items()}


def packed(value: Value) -> int | str | float | None:
    """Lists as JSON, everything else as it is."""
    if value is None or isinstance(value, int | str | float):
        return value
    return msgspec.json.encode(value).decode()
