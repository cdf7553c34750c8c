"""A run of messages is a sequence of them, whatever is taken from it."""

from __future__ import annotations

from forebay.broker.push_run import PushRun
from forebay.broker.store import PushItem

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
