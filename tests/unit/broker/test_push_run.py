"""A run of messages is a sequence of them, whatever is taken from it."""

from __future__ import annotations

import msgspec

from forebay.broker.messages import Pushed, PushItem
from forebay.broker.push_run import PushedRun, PushRun

RUN = PushRun("q", "p", [b"1", b"2", b"3"], ["a", "b", "c"], is_minted=True)


def test_a_run_is_its_messages() -> None:
    items = [PushItem("q", "p", b"%d" % number, name, True) for number, name in enumerate("abc", 1)]
    assert list(RUN) == items
    assert [RUN[place] for place in range(len(RUN))] == items
    assert RUN[-1] == items[-1]


def test_a_part_of_a_run_is_a_run() -> None:
    part = RUN[1:]
    assert isinstance(part, PushRun)
    assert list(part) == list(RUN)[1:]


def test_messages_taken_from_a_run_have_bytes_of_their_own() -> None:
    parts = msgspec.json.decode(b'[{"n": 1}, "x"]', type=list[msgspec.Raw])
    run = PushRun("q", "p", parts, ["a", "b"], is_minted=False)
    for payloads in ([item.payload for item in run], [run[0].payload, run[1].payload]):
        assert payloads == [b'{"n": 1}', b'"x"']
        assert {type(payload) for payload in payloads} == {bytes}


def test_what_became_of_a_run_is_one_answer_each() -> None:
    told = PushedRun(range(7, 10), "1-2", "log")
    each = [Pushed("queued", seq, "1-2", "log") for seq in (7, 8, 9)]
    assert list(told) == [told[place] for place in range(len(told))] == each
    assert list(told[1:]) == each[1:]
