"""How actions are tested: `pytest examples/testing-actions`. No server is needed."""

import json

import pytest
from shop_actions import Initials, Lines, OnlyRegion, initials

from forebay.flows import ClassAction, Error, Flow, QueueSink, Record, RecordContext, Source
from forebay.testing import run_action, run_flow

ORDERS = [
    {"customer": "Ann Lee", "region": "eu", "price": 10.0},
    {"customer": "Bob", "region": "us", "price": 20.0},
    {"customer": "Eve", "region": "eu", "price": None},
]
SCHEMA = "customer STRING, region STRING, price DOUBLE"


def test_orders_of_the_region_are_kept_with_their_discount():
    found = run_action(OnlyRegion(OnlyRegion.Params(region="eu", discount=0.1)), ORDERS, SCHEMA)
    assert found.rows == [{"customer": "Ann Lee", "region": "eu", "price": 9.0}]
    assert [(row["customer"], row["cause"]) for row in found.rejected] == [("Eve", "no price")]


def test_initials_are_added():
    found = run_action(Initials(Initials.Params()), ORDERS[:2], SCHEMA)
    assert [row["initials"] for row in found.rows] == ["AL", "B"]


def test_customer_without_a_name_is_an_error():
    with pytest.raises(ValueError, match="without a name"):
        initials(" ")


def test_order_becomes_its_items():
    orders = [
        {"customer": "Ann", "items": ["tea=2.5", "sugar=free"]},
        {"customer": "Bob", "items": []},
        {"customer": "Eve", "items": ["tea=much"]},
        {"customer": "Ida", "items": ["tea=2.5"]},
    ]
    found = run_action(Lines(Lines.Params(staff=("Ida",))), orders, "customer STRING, items ARRAY<STRING>")
    assert [(row["customer"], row["item"], row["price"]) for row in found.rows] == [
        ("Ann", "tea", 2.5),
        ("Ann", "sugar", 0.0),
    ]
    causes = {json.loads(row["payload"])["customer"]: row["cause"] for row in found.rejected}
    assert causes == {
        "Bob": "an order without items",
        "Eve": "ValueError: could not convert string to float: 'much'",
    }
    assert found.filtered == {"staff": 1}
    assert found.annotations == [{"gift": "sugar"}]


def test_record_action_is_tried_without_spark():
    record = Record.of({"customer": "Bob", "items": []})
    assert Lines(Lines.Params()).transform(record, RecordContext()) == Error("an order without items")


def test_sql_joins_with_the_table_of_countries():
    sql = "SELECT o.customer, r.name FROM input o JOIN regions r ON o.region = r.id"
    found = run_action(sql, ORDERS, SCHEMA, tables={"regions": [{"id": "eu", "name": "Europe"}]})
    assert sorted(row["customer"] for row in found.rows) == ["Ann Lee", "Eve"]


def test_whole_flow_turns_payloads_into_results_and_bad_records():
    flow = Flow(
        name="orders",
        mode="stream",
        source=Source(queue="orders", payload_as="json", schema=SCHEMA),
        actions=(ClassAction(name="eu", class_name="shop_actions.OnlyRegion", params={"region": "eu"}),),
        sink=QueueSink(queue="orders-eu"),
    )
    found = run_flow(flow, ['{"customer": "Ann", "region": "eu", "price": 5}', "not JSON"])
    assert [row["payload"] for row in found.rows] == ['{"customer":"Ann","region":"eu","price":5.0}']
    assert [bytes(row["payload"]) for row in found.rejected] == [b"not JSON"]
