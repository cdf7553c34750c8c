"""When queues ask for attention."""

from __future__ import annotations

from forebay.dispatch.health import SAMPLES, ColdHistory, warnings


def checks(warm: dict[str, int], cold: dict[str, int], growth: int = 0, without: tuple[str, ...] = ()) -> list[str]:
    return [f"{found.check}:{found.action_class}" for found in warnings(warm, cold, growth, without)]


def test_nothing_waits_and_nothing_is_said() -> None:
    assert checks({}, {}) == []
    assert checks({"geo": 10}, {"geo": 75_000}) == []


def test_a_warm_queue_above_ten_is_named() -> None:
    assert checks({"geo": 11, "enrich": 10}, {}) == ["warm:geo"]


def test_cold_parcels_of_all_classes_count_together() -> None:
    assert checks({}, {"geo": 75_000, "enrich": 1}) == ["cold:"]


def test_a_growing_cold_queue_is_told_above_ten_thousand() -> None:
    assert checks({}, {"geo": 10_000}, growth=5) == []
    assert checks({}, {"geo": 10_001}, growth=5) == ["cold-growth:"]
    assert checks({}, {"geo": 10_001}, growth=-5) == []
    assert checks({}, {"geo": 80_000}, growth=5) == ["cold:", "cold-growth:"]


def test_classes_that_no_worker_serves_are_named() -> None:
    assert checks({}, {}, without=("b", "a")) == ["no-worker:a", "no-worker:b"]


def test_what_nothing_takes_is_named() -> None:
    [found] = warnings({}, {}, 0, untaken=[".export.warehose@export"])
    assert (found.check, found.action_class) == ("no-exporter", "")
    assert ".export.warehose@export" in found.message


def test_growth_is_told_over_a_full_minute_of_samples() -> None:
    history = ColdHistory()
    for sample in range(SAMPLES - 1):
        history.note(sample)
        assert history.growth() == 0
    history.note(100)
    assert history.growth() == 100
    history.note(100)
    assert history.growth() == 99


def test_a_message_holds_its_numbers() -> None:
    (found,) = warnings({}, {"geo": 10_001}, 500, ())
    assert found.message == "10001 parcels wait cold, 500 more than 60 s ago"
