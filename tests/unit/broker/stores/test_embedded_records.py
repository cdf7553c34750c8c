"""Messages out of a record: the same, whether they stand side by side or not."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.broker.store import Message
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.commitlog.block import NO_TAG
from forebay.commitlog.columns import SCHEMA
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED

COUNT = 6
FIRST_SEQ = 100


def record(*, traced: bool = True) -> StoredRecord:
    columns = [
        range(FIRST_SEQ, FIRST_SEQ + COUNT),
        range(1_000, 1_000 + COUNT),
        [TRANSACTION_ID_IS_MINTED | (PAYLOAD_IS_BINARY if place == 4 else 0) for place in range(COUNT)],
        ["p"] * COUNT,
        [f"id-{place}-ä" for place in range(COUNT)],
        [f"trace-{place}" if traced else "" for place in range(COUNT)],
        [f'{{"n":{place}}}' if traced else "" for place in range(COUNT)],
        [b"x" * place for place in range(COUNT)],
    ]
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return StoredRecord(NO_TAG, pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))


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


@given(places=st.sets(st.integers(0, COUNT - 1)).map(sorted))
def test_messages_are_those_at_their_places(places: list[int]) -> None:
    assert record().messages("q", "1-2", places, attempts=3) == [expected(place) for place in places]


@given(start=st.integers(0, COUNT), stop=st.integers(0, COUNT))
def test_messages_side_by_side_are_those_at_their_places(start: int, stop: int) -> None:
    found = record().messages("q", "1-2", range(start, stop), attempts=3)
    assert found == [expected(place) for place in range(start, stop)]


def test_messages_without_traces_and_headers_have_empty_ones() -> None:
    found = record(traced=False).messages("q", "1-2", [0, 5], attempts=1)
    assert [(message.trace_id, message.headers) for message in found] == [("", b""), ("", b"")]
