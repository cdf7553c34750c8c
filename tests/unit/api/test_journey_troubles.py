"""What is wrong now is said in plain words, the worst first, with the page on which it is mended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.api.journey.figures import BuffersNow, DiskNow, ExportNow, Look, StoreLook
from forebay.api.journey.troubles import OF_A_KIND_MAX, troubles_of
from forebay.api.queue_figures import GroupNow, QueueNow
from forebay.dispatch.health import HealthWarning
from forebay.flows.flow_report import FlowReport
from forebay.flows.supervision import State

QUIET = Look(at_us=1_000_000_000, taken_here=0, store=StoreLook())
EXPORT = ExportNow("shop", "destination", 0, 0.0, "closed", False, 0, 0, "", 0, 0, 0)


def queue(name: str, *groups: GroupNow, dead: int = 0) -> QueueNow:
    return QueueNow(name, "", "", 1, 1, 10, 10, 100, 0, 0.0, dead, 0, groups)


def group(name: str, lag: int, seconds: float) -> GroupNow:
    return GroupNow(name, lag, 0, lag, seconds, 0, 1, 1)


def texts(look: Look) -> list[str]:
    return [trouble.text for trouble in troubles_of(look)]


def test_nothing_is_wrong_where_nothing_waits() -> None:
    assert troubles_of(QUIET) == []


def test_store_that_is_away_comes_first_and_says_why() -> None:
    look = replace(QUIET, is_store_there=False, buffers=BuffersNow(pending=3, reason="timeout"), is_push_paused=True)
    found = troubles_of(look)
    assert [each.severity for each in found] == ["broken", "note"]
    assert "The store does not answer: timeout." in found[0].text
    assert found[0].link == "/buffers"


@pytest.mark.parametrize(("lag", "seconds", "is_told"), [(5, 61.0, True), (5, 59.0, False), (0, 0.0, False)])
def test_group_is_told_once_it_is_a_minute_behind(lag: int, seconds: float, is_told: bool) -> None:
    look = replace(QUIET, store=StoreLook(queues=[queue("a/b c", group("billing", lag, seconds))]))
    found = troubles_of(look)
    assert bool(found) is is_told
    if found:
        assert found[0].text == "Group billing of queue a/b c is 5 messages and 1 min behind."
        assert found[0].link == "/queues/a%2Fb%20c"


def test_groups_of_internal_queues_are_told_by_their_destination_only() -> None:
    look = replace(QUIET, store=StoreLook(queues=[queue(".export.shop", group("export", 5, 100.0))]))
    assert troubles_of(look) == []


def test_very_many_of_a_kind_are_one_sentence_more() -> None:
    queues = [queue(f"q{number}", dead=1) for number in range(100)]
    found = troubles_of(replace(QUIET, store=StoreLook(queues=queues)))
    assert len(found) == OF_A_KIND_MAX + 1
    assert found[-1].text.startswith("And 95 more like")


def test_action_class_without_worker_is_broken_and_parcels_at_work_are_not() -> None:
    warnings = [HealthWarning("warm", "geo", "20 parcels wait warm"), HealthWarning("no-worker", "geo", "parcels wait")]
    found = troubles_of(replace(QUIET, store=StoreLook(warnings=warnings)))
    assert [(each.severity, each.text, each.link) for each in found] == [
        ("broken", "Action class geo: parcels wait.", "/queue-metrics")
    ]


def test_destination_that_refuses_is_told_with_what_waits_and_when_it_is_tried_again() -> None:
    shop = replace(EXPORT, breaker="open", waiting=3, retry_seconds=12.4, last_error="network: refused\nmore")
    found = troubles_of(replace(QUIET, exports=[shop]))
    assert [(each.severity, each.link) for each in found] == [("broken", "/destinations")]
    assert found[0].text == (
        "Destination shop does not take anything: network: refused. 3 batches wait; it is tried again in 12 s."
    )


def test_destination_between_two_attempts_is_a_warning() -> None:
    shop = replace(EXPORT, kind="export", waiting=1, backoff_seconds=5.0, last_error="timeout")
    assert texts(replace(QUIET, exports=[shop])) == [
        "Export shop did not take the last batch: timeout. It is tried again every 5 s; 1 message wait."
    ]


def test_what_was_dropped_is_broken_and_dead_letters_are_a_warning() -> None:
    found = troubles_of(replace(QUIET, exports=[replace(EXPORT, dead=2, dropped=1)]))
    assert [each.severity for each in found] == ["broken", "warning"]


@pytest.mark.parametrize(
    ("state", "severity"),
    [(State.FAILED, "broken"), (State.LOST, "broken"), (State.RESTARTING, "broken"), (State.PAUSED, "note")],
)
def test_flows_that_do_not_run_are_told(state: State, severity: str) -> None:
    reports = [FlowReport(name="clicks", state=state, cause="no such column\nat line 1")]
    (found,) = troubles_of(replace(QUIET, store=StoreLook(reports=reports)))
    assert (found.severity, found.link) == (severity, "/flows")
    assert "clicks" in found.text


def test_flow_that_runs_is_no_trouble() -> None:
    reports = [FlowReport(name="clicks", state=State.RUNNING)]
    assert troubles_of(replace(QUIET, store=StoreLook(reports=reports))) == []


@pytest.mark.parametrize(("share", "severity"), [(0.09, "warning"), (0.04, "broken")])
def test_disk_that_fills_is_told(share: float, severity: str) -> None:
    (found,) = troubles_of(replace(QUIET, disks=[DiskNow("data", share)]))
    assert (found.severity, found.text) == (severity, f"The disk of data has {share:.0%} left.")


def test_lost_messages_are_broken() -> None:
    (found,) = troubles_of(replace(QUIET, lost={"orders": 1}))
    assert (found.severity, found.text) == ("broken", "Queue orders: 1 message cannot be read any more.")
