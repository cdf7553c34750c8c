"""A flow on parcels as dispatch sees it: where chains begin, what a step is, and the flow itself in JSON."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.checking import check_flow
from forebay.dispatch.definition import FlowDefinition
from forebay.errors import Permanent
from forebay.flows import ClassAction, Flow, QueueSink, Retry, Source, SqlAction, StaticTable, Table, TableSink
from forebay.flows.chains import chains_of, dispatch_definition, flow_of_spec, spec_of
from forebay.flows.definition import ErrorFilter, ExportSink, Join


def a_flow(*actions: SqlAction | ClassAction, **more: object) -> Flow:
    given = {"source": Source(queue="in"), "sink": QueueSink(queue="out"), **more}
    return Flow(name="shop", actions=actions, **given)  # type: ignore[arg-type]


def sql(name: str, **more: object) -> SqlAction:
    return SqlAction(name=name, sql="TABLE input", **more)  # type: ignore[arg-type]


def test_actions_are_one_chain_up_to_the_sinks() -> None:
    [chain] = chains_of(a_flow(sql("a"), sql("b"), sql("c")))
    assert (chain.name, chain.action_class, chain.is_last) == ("a", "sql", True)
    assert [action.name for action in chain.actions] == ["a", "b", "c"]
    assert (chain.input_queue, chain.output_queue) == ("", "")


def test_a_chain_begins_at_each_action_that_stands_by_itself_or_joins() -> None:
    geocode = ClassAction(name="geo", class_name="shop.Geocode", isolate=True)
    joined = sql("sum", join=Join(max_age=timedelta(seconds=5)))
    chains = chains_of(a_flow(sql("a"), sql("b"), geocode, sql("round"), joined))
    assert [(chain.name, chain.action_class, len(chain.actions)) for chain in chains] == [
        ("a", "sql", 2),
        ("geo", "shop.Geocode", 2),
        ("sum", "sql", 1),
    ]
    assert [chain.output_queue for chain in chains] == [".flow.shop.geo", ".flow.shop.sum", ""]
    assert [chain.input_queue for chain in chains] == ["", ".flow.shop.geo", ".flow.shop.sum"]


def test_a_first_action_that_stands_by_itself_has_no_chain_before_it() -> None:
    assert [chain.name for chain in chains_of(a_flow(sql("a", isolate=True), sql("b")))] == ["a"]


def test_a_flow_without_actions_copies() -> None:
    [chain] = chains_of(a_flow())
    assert (chain.name, chain.action_class) == ("copy", "copy")


def test_a_chain_may_take_as_long_as_its_actions_together() -> None:
    flow = a_flow(sql("a", time_limit=timedelta(seconds=5)), sql("b"), time_limit=timedelta(seconds=60))
    assert [chain.time_limit_seconds for chain in chains_of(flow)] == [65]


def test_the_definition_is_one_that_dispatch_takes() -> None:
    flow = a_flow(
        sql("a", retry=Retry(max_attempts=7, delay=timedelta(seconds=3))),
        sql("b", join=Join(max_age=timedelta(seconds=5), min=2, max=9, key="user")),
        source=Source(
            queue="in", group="g", parcel_messages=5, parcel_wait=timedelta(seconds=1), starting_offsets={"seq": 7}
        ),
        max_errors=4,
    )
    definition = dispatch_definition(flow)
    found = msgspec.convert({"name": "shop", **definition}, FlowDefinition)
    check_flow(found)
    assert (found.source.queue, found.source.group, found.source.start_seq) == ("in", "g", 7)
    assert (found.source.parcel_messages, found.source.parcel_wait_seconds, found.source.max_errors) == (5, 1.0, 4)
    assert (found.steps[0].retry.max_attempts, found.steps[0].retry.delay_seconds) == (7, 3.0)
    assert found.steps[1].join is not None
    assert (found.steps[1].join.min, found.steps[1].join.key) == (2, "user")


@pytest.mark.parametrize(
    "source", [Source(cron="*/5 * * * *"), Source(errors=ErrorFilter(text="disk", flows=("a",), actions=("b",)))]
)
def test_timers_and_errors_of_other_flows_are_sources_that_dispatch_takes(source: Source) -> None:
    definition = dispatch_definition(a_flow(sql("a"), source=source))
    check_flow(msgspec.convert({"name": "shop", **definition}, FlowDefinition))


def test_a_time_to_begin_at_is_a_seq_by_then() -> None:
    flow = a_flow(source=Source(queue="in", starting_timestamp="2026-01-01T00:00:00Z"))
    assert dispatch_definition(flow, 42)["source"]["startSeq"] == 42


_DURATIONS = st.integers(1, 10**8).map(lambda ms: timedelta(milliseconds=ms))
_ACTIONS = st.one_of(
    st.builds(
        lambda isolate, limit, on_error: sql("s", isolate=isolate, time_limit=limit, on_error=on_error),
        st.booleans(),
        st.none() | _DURATIONS,
        st.sampled_from([None, "fail", "skip", "queue"]),
    ),
    st.builds(
        lambda params, retry: ClassAction(name="c", class_name="a.B", params=params, retry=retry),
        st.dictionaries(
            st.text(max_size=5), st.none() | st.integers() | st.lists(st.text(max_size=3), max_size=3), max_size=3
        ),
        st.none() | st.builds(lambda delay: Retry(max_attempts=2, delay=delay), _DURATIONS),
    ),
)


@given(actions=st.lists(_ACTIONS, max_size=4), wait=_DURATIONS, text=st.text(max_size=10))
def test_a_flow_comes_out_of_its_spec_as_it_went_in(
    actions: list[SqlAction | ClassAction], wait: timedelta, text: str
) -> None:
    flow = a_flow(
        *actions,
        source=Source(queue="q", parcel_wait=wait, max_payload=7),
        tables={"users": StaticTable(format="csv", options={"header": text})},
        sink=None,
        sinks=(
            QueueSink(queue="a", where="x > 1"),
            TableSink(table=Table(path="p", partition_by=("did",))),
            ExportSink(export="warehouse"),
        ),
    )
    through_json = json.loads(json.dumps(spec_of(flow)))
    assert flow_of_spec(through_json) == flow


def test_a_spec_of_another_version_is_refused_with_what_is_not_known() -> None:
    with pytest.raises(Permanent, match="novelty: no such key"):
        flow_of_spec({**spec_of(a_flow()), "novelty": 1})
