"""What is new of a run gets the next numbers, and every message has its answer."""

from __future__ import annotations

from collections import defaultdict

from forebay.broker.messages import DUPLICATE, FAILED, QUEUED, Pushed
from forebay.broker.numbering import by_run, count_of, each_message, numbered
from forebay.model.push_run import PushRun, run_of_one
from forebay.model.text_block import TextBlock

IDS = {"p": "1-1", "r": "1-2"}
P = {"p": "1-1"}
RUN = PushRun.of("q", "p", [b"1", b"2", b"3"], ["a", "b", "a"])
MIXED = PushRun("q", ["p", "r", "p"], TextBlock.of([b"1", b"2", b"3"]), ["a", "a", "a"])


def test_a_run_of_which_all_is_new_has_one_answer() -> None:
    assert numbered(RUN, 7, None, P, "log") == (RUN, [Pushed(QUEUED, 7, "1-1", "log", 3)])
    taken = defaultdict(dict, {"p": {"x": 1}})
    new, answers = numbered(RUN.at([0, 1]), 7, taken, P, "log")
    assert new is not None
    assert (list(new.transaction_ids), answers) == (["a", "b"], [Pushed(QUEUED, 7, "1-1", "log", 2)])
    assert taken["p"] == {"x": 1, "a": 7, "b": 8}


def test_messages_of_several_partitions_have_an_answer_each() -> None:
    _, answers = numbered(MIXED, 7, None, IDS, "log")
    assert [(one.seq, one.partition_id) for one in answers] == [(7, "1-1"), (8, "1-2"), (9, "1-1")]


def test_an_id_that_comes_twice_is_numbered_once_in_its_partition() -> None:
    new, answers = numbered(MIXED, 7, defaultdict(dict), IDS, "log")
    assert new == MIXED.at([0, 1])
    assert [(one.status, one.seq) for one in answers] == [(QUEUED, 7), (QUEUED, 8), (DUPLICATE, 7)]


def test_nothing_is_left_of_a_run_that_is_there_already() -> None:
    new, answers = numbered(run_of_one("q", "p", b"1", "a"), 7, {"p": {"a": 3}}, IDS, "log")
    assert new is None
    assert answers == [Pushed(DUPLICATE, 3, "1-1", "log")]


def test_answers_are_found_by_run_and_by_message() -> None:
    answers = [Pushed(QUEUED, 7, "1-1", "log", 2), Pushed(DUPLICATE, 1, "1-1", "log"), Pushed(FAILED, 0, "", "why", 2)]
    runs = [RUN, PushRun.of("q", "p", [b"1"] * 2, ["c", "d"])]
    assert list(by_run(runs, answers)) == [answers[:2], answers[2:]]
    assert [(one.seq, one.count) for one in each_message(answers)] == [(7, 1), (8, 1), (1, 1), (0, 1), (0, 1)]
    assert [count_of(status, answers) for status in (QUEUED, DUPLICATE, FAILED)] == [2, 1, 2]
