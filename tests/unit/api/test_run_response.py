"""The answer to a run of pushes: put together from text, and the same as from structs."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from forebay.api.responses import PushedItem, answered, message_id
from forebay.api.run_response import run_answer
from forebay.broker.messages import QUEUED, Pushed
from forebay.model.ids import minted_ids
from forebay.model.push_run import PushRun

PLAIN = st.text("abcXYZ019-_.:/ {}[]%'", min_size=1, max_size=12)


def by_structs(ids: list[str], queue: str, pushed: Pushed) -> bytes:
    return answered(
        [
            PushedItem(
                *(index, QUEUED, given_id, given_id, message_id(queue, seq), message_id(queue, seq)),
                *(pushed.partition_id, pushed.partition_id, seq, pushed.receipt, None, None),
            )
            for index, (given_id, seq) in enumerate(zip(ids, range(pushed.seq, pushed.seq + pushed.count), strict=True))
        ]
    ).body


@given(count=st.integers(1, 300), first_seq=st.integers(1, 1 << 49), receipt=st.sampled_from(["log", "database"]))
def test_run_with_minted_ids_is_answered_as_structs_would(count: int, first_seq: int, receipt: str) -> None:
    run = PushRun.of("orders", "p", [b"1"] * count, minted_ids(count), is_minted=True)
    pushed = Pushed(QUEUED, first_seq, "12-345", receipt, count)
    assert run_answer(run, pushed) == by_structs(list(run.transaction_ids), "orders", pushed)


@given(ids=st.lists(PLAIN, min_size=1, max_size=30), first_seq=st.integers(1, 300))
def test_run_with_given_ids_is_answered_as_structs_would(ids: list[str], first_seq: int) -> None:
    run = PushRun.of("orders", "p", [b"1"] * len(ids), ids, is_minted=False)
    pushed = Pushed(QUEUED, first_seq, "1-2", "log", len(ids))
    assert run_answer(run, pushed) == by_structs(ids, "orders", pushed)


@given(ids=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8))
def test_ids_of_any_text_are_valid_json_or_left_to_the_structs(ids: list[str]) -> None:
    encodable = [text.encode(errors="replace").decode() for text in ids]
    run = PushRun.of("orders", "p", [b"1"] * len(ids), encodable, is_minted=False)
    found = run_answer(run, Pushed(QUEUED, 1, "1-2", "log", len(ids)))
    assert found is None or [each["transactionId"] for each in json.loads(found)] == encodable


def test_id_with_a_quote_is_left_to_the_structs() -> None:
    run = PushRun.of("orders", "p", [b"1"] * 2, ["plain", 'a"b'], is_minted=False)
    assert run_answer(run, Pushed(QUEUED, 1, "1-2", "log", 2)) is None
