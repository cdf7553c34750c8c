"""A run of messages keeps their columns of one length, whatever is taken from it."""

from __future__ import annotations

import msgspec

from forebay.model.push_run import PushRun, by_partition, message_count, neighbours, places_of, run_of_one
from forebay.model.text_block import TextBlock

MIXED = PushRun(
    "q",
    ["p", "p", "r", "p"],
    TextBlock.of([b"1", b"22", b"", b"4"]),
    ["a", "b", "c", "d"],
    trace_ids=["", "t", "", ""],
    headers=[b"{}", b"", b"", b"h"],
)


def rows(run: PushRun) -> list[tuple[str, bytes, str, str, bytes]]:
    columns = run.partitions, run.payloads, run.transaction_ids, run.trace_column(), run.header_column()
    return list(zip(*columns, strict=True))


def test_a_part_of_a_run_is_a_run_of_those_messages() -> None:
    for places in ([1], [0, 3], range(1, 3)):
        part = MIXED.at(places)
        assert rows(part) == [rows(MIXED)[place] for place in places]
        assert (part.queue, part.size_bytes) == ("q", sum(len(payload) for _, payload, *_ in rows(part)))
        assert list(part.id_block()) == [own_id.encode() for own_id in part.transaction_ids]
    assert MIXED.at(range(4)) is MIXED


def test_a_run_of_several_partitions_is_divided_in_its_order() -> None:
    divided = by_partition([run_of_one("q", "p", b"0", "z"), MIXED])
    assert [(run.partition, len(run)) for run in divided] == [("p", 1), ("p", 2), ("r", 1), ("p", 1)]
    assert [row for run in divided[1:] for row in rows(run)] == rows(MIXED)
    assert places_of(divided) == places_of([MIXED]) == {("q", "p"), ("q", "r")}
    assert message_count(divided) == 5
    assert MIXED.partition is None


def test_a_message_that_comes_alone_is_a_run_of_one() -> None:
    alone = run_of_one("q", "p", b"1", "a", True, "trace", b"{}", True, "shop", "bill")
    assert rows(alone) == [("p", b"1", "a", "trace", b"{}")]
    assert (alone.is_minted, alone.is_binary, alone.namespace, alone.task) == (True, True, "shop", "bill")
    assert rows(run_of_one("q", "p", b"1", "a")) == rows(PushRun.of("q", "p", [b"1"], ["a"]))


def test_messages_taken_from_a_run_have_bytes_of_their_own() -> None:
    parts = msgspec.json.decode(b'[{"n": 1}, "x"]', type=list[msgspec.Raw])
    payloads = list(PushRun.of("q", "p", parts, ["a", "b"]).payloads)
    assert payloads == [b'{"n": 1}', b'"x"']
    assert {type(payload) for payload in payloads} == {bytes}


def test_neighbours_that_are_alike_stand_together() -> None:
    assert list(neighbours("aabba")) == [("a", slice(0, 2)), ("b", slice(2, 4)), ("a", slice(4, 5))]
    assert list(neighbours("")) == []
