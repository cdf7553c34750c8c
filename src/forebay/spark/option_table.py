"""Which options `format("forebay")` has, for what, and with which values. The reference page is made of this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from forebay.spark.positions import offset_position, time_position

FORMAT = "forebay"
BATCH_READ = "spark.read"
STREAM_READ = "spark.readStream"
BATCH_WRITE = "write"
STREAM_WRITE = "writeStream"
EITHER_READ = "spark.read or spark.readStream"
"""Before Spark has said which of them."""
READS = (BATCH_READ, STREAM_READ)
WRITES = (BATCH_WRITE, STREAM_WRITE)

Source = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    uses: tuple[str, ...]
    read: Source
    default: str
    """As it stands in the reference."""
    meaning: str

    def belongs_to(self, use: str) -> bool:
        return use in self.uses or (use == EITHER_READ and not set(READS).isdisjoint(self.uses))


def _text(given: str) -> str:
    if not given.strip():
        raise ValueError("it is empty")
    return given


def _list(given: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in given.split(",") if part.strip())
    if not found:
        raise ValueError("it is empty")
    return found


def _urls(given: str) -> tuple[str, ...]:
    for url in (found := _list(given)):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no server's URL, which looks like http://127.0.0.1:6632")
    return tuple(url.rstrip("/") for url in found)


def _whole(lowest: int) -> Source:
    def read(given: str) -> int:
        if not given.strip().isdecimal() or int(given) < lowest:
            raise ValueError(f"it is a whole number from {lowest} on, not {given!r}")
        return int(given)

    return read


def _switch(given: str) -> bool:
    if given.strip().lower() not in ("true", "false"):
        raise ValueError(f"it is true or false, not {given!r}")
    return given.strip().lower() == "true"


def _seconds(given: str) -> float:
    number = given.strip().removesuffix("s")
    try:
        seconds = float(number)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ValueError(f"it is a number of seconds up to a day, such as 60s, not {given!r}")
    return seconds


def _choice(*words: str) -> Source:
    def read(given: str) -> str:
        if given.strip().lower() not in words:
            raise ValueError(f"it is {' or '.join(words)}, not {given!r}")
        return given.strip().lower()

    return read


EVERY = READS + WRITES
PAYLOAD_AS_READ = _choice("binary", "string", "json")
PAYLOAD_AS_WRITE = _choice("json")

OPTIONS = (
    Option(
        "url",
        EVERY,
        _urls,
        "`spark.forebay.url` of the session, else the variable `FOREBAY_URL`, else `http://127.0.0.1:6632`",
        "The server, or several with commas between: the next one is tried when one does not answer.",
    ),
    Option(
        "apiKey",
        EVERY,
        _text,
        "`spark.forebay.apiKey`, else `FOREBAY_API_KEY`, else none",
        "A key of the server: scope `read` to read, `write` to write; `group` moves a cursor, which is for `admin`, "
        "or for `write` of a keys file.",
    ),
    Option("queue", EVERY, _text, "must be given", "The queue."),
    Option(
        "retryTimeout",
        EVERY,
        _seconds,
        "60s",
        "How long a server may be away, or a queue full, before the query fails.",
    ),
    Option(
        "startingOffsets",
        READS,
        offset_position,
        "earliest; of a stream, latest",
        'Where a new query begins: `earliest`, `latest` or `{"seq": n}`. A query with a checkpoint goes on there.',
    ),
    Option(
        "startingTimestamp",
        READS,
        time_position,
        "",
        "The same by time: the first message created then or later. RFC 3339, or milliseconds since 1970.",
    ),
    Option(
        "endingOffsets",
        (BATCH_READ,),
        offset_position,
        "latest",
        'Where the read ends: `latest` is what was there when the frame was loaded; `{"seq": n}` is without n itself.',
    ),
    Option("endingTimestamp", (BATCH_READ,), time_position, "", "The same by time: only messages created before it."),
    Option("partition", READS, _list, "all", "Only these partitions of the queue, with commas between."),
    Option(
        "group",
        (STREAM_READ,),
        _text,
        "none",
        "A group whose cursor follows the query, so that its lag is seen in Forebay. It is not where the query begins.",
    ),
    Option("maxOffsetsPerTrigger", (STREAM_READ,), _whole(1), "no limit", "At most so many messages in a batch."),
    Option(
        "maxBytesPerTrigger",
        (STREAM_READ,),
        _whole(1),
        "no limit",
        "About so many bytes in a batch, reckoned by the average message that is kept. At least one message.",
    ),
    Option("minPartitions", READS, _whole(1), "1", "At least so many tasks, if there are that many messages."),
    Option(
        "maxRecordsPerPartition",
        READS,
        _whole(1),
        "100000; with a local master up to 500000",
        "At most so many messages in one task. A local session makes no more tasks than it has cores, if they can do "
        "with 500000 each.",
    ),
    Option(
        "failOnDataLoss",
        READS,
        _switch,
        "true",
        "Whether the query stops, with the numbers, when messages were removed or lost before it read them, or when "
        "the queue was deleted and made again. With false it goes on without them, and the log says which.",
    ),
    Option(
        "holdRetention",
        (STREAM_READ,),
        _seconds,
        "86400s",
        "For how long after it last showed itself a stream keeps `completedRetentionSeconds` from removing what it has "
        "not read. 0 for not at all.",
    ),
    Option(
        "payloadAs",
        EVERY,
        PAYLOAD_AS_READ,
        "binary",
        "Reading: what the payload becomes: `binary`, `string` (the bytes as they are, not checked to be UTF-8), or "
        "`json` with `schema`: columns, as Spark's from_json makes them. Writing: `json` packs all columns that are "
        "not the message's own into one object.",
    ),
    Option(
        "schema",
        READS,
        _text,
        "",
        "For `payloadAs=json`: the columns of the payload as DDL, such as `user STRING, ms INT NOT NULL`. "
        "`.schema(…)` does the same.",
    ),
    Option(
        "pushFilters",
        (BATCH_READ,),
        _switch,
        "false",
        "Let the server apply filters on `seq`, `partition` and `created_at`. Then query the loaded frame only once: "
        "Spark keeps the narrowed plan for every later query on it, which would miss rows.",
    ),
    Option(
        "snapshot",
        (BATCH_READ,),
        _text,
        "",
        "What the frame shows. Set by a Connect session when the frame is loaded, and by nothing else.",
    ),
    Option("maxBytesPerStage", WRITES, _whole(1), "16777216", "How much a task sends to the server at a time."),
    Option(
        "producer",
        (BATCH_WRITE,),
        _text,
        "a new one for each write",
        "With `epoch`: a write with the same two to the same queue is done once, however often it is run. Made for "
        "`foreachBatch`.",
    ),
    Option("epoch", (BATCH_WRITE,), _text, "", "See `producer`: the batch's id."),
    Option(
        "writeName",
        (BATCH_WRITE,),
        _text,
        "none",
        "With `producer`: tells several writes of one batch to one queue apart.",
    ),
    Option(
        "onDifferentRepeat",
        WRITES,
        _choice("fail", "keep"),
        "fail",
        "What follows when a write that was committed is repeated with other rows: the query fails with the numbers, "
        "or the rows that were committed first are kept, and the log says so.",
    ),
)
