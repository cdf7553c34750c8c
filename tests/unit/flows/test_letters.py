"""Which way the record of a letter goes: alone only where that brings back its own results and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.flows.letters import Original, Stays, ToQueue, ToStep, Way, way_of

BEHIND = {"queue": ".flow.shop.eu.geo", "step": "geo", "did": "d1", "action": "geo"}


@pytest.mark.parametrize(
    ("headers", "way"),
    [
        ({"queue": "orders", "seq": 7, "holds": "input"}, ToQueue("orders")),
        ({"queue": "returns", "holds": "input"}, ToQueue("returns")),
        ({}, ToQueue("orders")),
        ({"queue": "orders", "seq": 7}, ToQueue("orders")),
        (
            {"queue": "orders", "seq": 7, "holds": "row", "did": "d1"},
            Original("orders", 7, "forebay parcels replay d1"),
        ),
        ({**BEHIND, "seq": 3, "holds": "input"}, ToStep("geo", "d1")),
        ({**BEHIND, "holds": "input"}, ToStep("geo", "d1")),
    ],
)
def test_record_goes_where_it_is_from(headers: dict[str, Any], way: Way) -> None:
    assert way_of(headers, "shop.eu", "orders") == way


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"queue": "", "did": "d1", "holds": "input"}, "failed without a message: forebay parcels replay d1"),
        ({"queue": "orders", "holds": "row", "action": "geo", "did": "d1"}, "the row in front of action geo is no"),
        ({**BEHIND, "seq": 3, "holds": "row"}, "the row in front of action geo is no message"),
        ({**BEHIND, "seq": 3}, "failed in step shop.eu.geo: forebay parcels replay d1"),
        ({**BEHIND, "holds": "input", "did": ""}, "failed in step shop.eu.geo: forebay parcels replay DID"),
        ({**BEHIND, "queue": ".flow.other.geo", "holds": "input"}, "failed in step other.geo"),
        ({**BEHIND, "step": "eu.geo", "holds": "input"}, "failed in step shop.eu.geo"),
        ({"queue": "orders", "seq": 7, "holds": "input", "split": True}, "the record became several rows"),
        ({**BEHIND, "holds": "input", "split": True}, "the record became several rows"),
    ],
)
def test_record_stays_where_its_letter_does_not_say_enough_or_others_would_come_with_it(
    headers: dict[str, Any], reason: str
) -> None:
    way = way_of(headers, "shop.eu", "orders")
    assert isinstance(way, Stays)
    assert way.reason.startswith(reason)


def test_step_of_another_flow_whose_name_begins_alike_is_not_taken_for_the_own() -> None:
    headers = {**BEHIND, "queue": ".flow.shop.eu.geo", "step": "geo", "holds": "input"}
    assert isinstance(way_of(headers, "shop", "orders"), Stays)
