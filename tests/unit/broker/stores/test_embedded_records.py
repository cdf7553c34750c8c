"""Messages out of a record: the same, whether they stand side by side or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fixtures.logs import encode
from forebay.broker.message_columns import MessageColumns, Run
from forebay.broker.messages import Message
from forebay.broker.stores.embedded.records import RecordCache, StoredRecord
from forebay.commitlog import CommitLog
from forebay.commitlog.block import Header, parse_header
from forebay.commitlog.plain import PlainRecord
from forebay.commitlog.state import RecordPosition
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED, MessageBatch

COUNT = 6
FIRST_SEQ = 100


def record(*, traced: bool = True) -> StoredRecord:
    batch = MessageBatch(
        payloads=[b"x" * place for place in range(COUNT)],
        created_us=list(range(1_000, 1_000 + COUNT)),
        partitions=[b"p"] * COUNT,
        transaction_ids=[f"id-{place}-ä".encode() for place in range(COUNT)],
        trace_ids=[f"trace-{place}".encode() if traced else b"" for place in range(COUNT)],
        headers=[f'{{"n":{place}}}'.encode() if traced else b"" for place in range(COUNT)],
        flags=[TRANSACTION_ID_IS_MINTED | (PAYLOAD_IS_BINARY if place == 4 else 0) for place in range(COUNT)],
    )
    data = b"".join(encode([batch], FIRST_SEQ))
    header = parse_header(data, 0, 0)
    assert isinstance(header, Header)
    return StoredRecord(PlainRecord(data, 0, header))


def expected(place: int) -> Message:
    return Message(
        FIRST_SEQ + place,
        "q",
        "p",
        "1-2",
        f"id-{place}-ä",
        f"trace-{place}",
        1_000 + place,
        b"x" * place,
        f'{{"n":{place}}}'.encode(),
        place == 4,
        3,
    )


def messages(found: StoredRecord, places: Sequence[int], attempts: int) -> list[Message]:
    columns = MessageColumns()
    found.add_to(columns, Run("q", "p", "1-2", len(places)), places, attempts)
    return list(columns)


@given(places=st.sets(st.integers(0, COUNT - 1)).map(sorted))
def test_messages_are_those_at_their_places(places: list[int]) -> None:
    assert messages(record(), places, 3) == [expected(place) for place in places]


@given(start=st.integers(0, COUNT), stop=st.integers(0, COUNT))
def test_messages_side_by_side_are_those_at_their_places(start: int, stop: int) -> None:
    found = messages(record(), range(start, stop), 3)
    assert found == [expected(place) for place in range(start, stop)]


def test_messages_without_traces_and_headers_have_empty_ones() -> None:
    found = messages(record(traced=False), [0, 5], 1)
    assert [(message.trace_id, message.headers) for message in found] == [("", b""), ("", b"")]


def test_records_that_were_used_up_are_forgotten_before_those_in_use(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path / "log")
    places = [log.append_record(MessageBatch(payloads=[b"x"], created_us=[1_000])) for _ in range(3)]
    cache = RecordCache(used_up_bytes=1)
    first, second, third = (cache.get(1, log, *keyed(place)) for place in places)
    cache.retire(1, second)
    assert cache.get(1, log, *keyed(places[1])) is second, "the last one that was used up stays"
    cache.retire(1, third)
    assert cache.get(1, log, *keyed(places[2])) is third
    assert cache.get(1, log, *keyed(places[1])) is not second
    assert cache.get(1, log, *keyed(places[0])) is first
    cache.forget([1])
    assert cache.get(1, log, *keyed(places[0])) is not first
    assert cache.get(1, log, *keyed(places[2])) is not third
    log.close()


def keyed(place: RecordPosition) -> tuple[int, int]:
    return place.first_seq, place.position
