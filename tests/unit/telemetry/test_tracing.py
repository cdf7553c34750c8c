"""Contexts of traces as they travel, and what is noted of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from forebay.telemetry.span_export import request_of
from forebay.telemetry.tracing import (
    LINKS_MAX,
    Context,
    Kind,
    Tracer,
    context_of,
    in_headers,
    of_headers,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = Context(TRACE, SPAN, True)


def test_a_traceparent_is_read_and_written_as_it_was() -> None:
    text = f"00-{TRACE}-{SPAN}-01"
    assert context_of(text.encode()) == PARENT
    assert PARENT.header() == text
    unsampled = context_of(f"00-{TRACE}-{SPAN}-00".encode())
    assert unsampled is not None
    assert not unsampled.is_sampled
    assert context_of(f" 00-{TRACE}-{SPAN}-03 ".encode()) == PARENT  # other flags are not known here
    assert context_of(f"42-{TRACE}-{SPAN}-01-more".encode()) == PARENT  # a later version may have more


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\r\nX: y",
    ],
)
def test_what_is_no_traceparent_is_no_context(text: str) -> None:
    assert context_of(text.encode()) is None


@given(st.binary(max_size=80))
def test_no_header_is_too_strange_to_be_read(header: bytes) -> None:
    found = context_of(header)
    assert found is None or context_of(found.header().encode()) == found


@given(st.lists(st.binary(max_size=60) | st.just(in_headers(PARENT)), max_size=10))
def test_headers_of_messages_give_each_trace_once(headers: list[bytes]) -> None:
    assert of_headers(headers) == ([PARENT] if in_headers(PARENT) in headers else [])


def test_of_many_traces_a_bounded_number_is_followed() -> None:
    headers = [in_headers(Context(f"{number:032x}", SPAN, True)) for number in range(1, 100)]
    assert len(of_headers(headers)) == LINKS_MAX


def test_a_tracer_that_is_off_notes_nothing() -> None:
    tracer = Tracer()
    assert tracer.begin("push", Kind.SERVER, PARENT) is None
    tracer.end(None)
    assert not tracer.waiting


def test_the_parent_decides_and_the_ratio_where_there_is_none() -> None:
    never, always = Tracer(is_on=True, sample_ratio=0.0), Tracer(is_on=True, sample_ratio=1.0)
    assert never.begin("push", Kind.SERVER, None) is None
    assert always.begin("push", Kind.SERVER, PARENT._replace(is_sampled=False)) is None
    child, first = never.begin("push", Kind.SERVER, PARENT), always.begin("push", Kind.SERVER, None)
    assert child is not None
    assert first is not None
    assert (child.context.trace_id, child.parent_id) == (TRACE, SPAN)
    assert (first.parent_id, len(first.context.trace_id), len(first.context.span_id)) == ("", 32, 16)
    half = Tracer(is_on=True, sample_ratio=0.5)
    taken = sum(half.begin("push", Kind.SERVER, None) is not None for _ in range(2000))
    assert 800 < taken < 1200


def test_spans_beyond_the_buffer_are_dropped_and_counted() -> None:
    tracer = Tracer(is_on=True, spans_max=3)
    for _ in range(5):
        tracer.end(tracer.begin("push", Kind.SERVER, PARENT))
    assert (len(tracer.waiting), tracer.dropped) == (3, 2)


def test_spans_become_an_otlp_request() -> None:
    tracer = Tracer(is_on=True)
    other = Context("1" * 32, "2" * 16, True)
    span = tracer.begin("send lake", Kind.CLIENT, PARENT, links=[other], start_ns=5)
    tracer.end(span, {"forebay.items": 3, "forebay.destination": "lake"}, "network")
    request = request_of([*tracer.waiting], {"service.name": "forebay"})
    [found] = request.resource_spans
    assert [(one.key, one.value.string_value) for one in found.resource.attributes] == [("service.name", "forebay")]
    [message] = found.scope_spans[0].spans
    assert (message.trace_id.hex(), message.parent_span_id.hex(), message.name) == (TRACE, SPAN, "send lake")
    assert (message.kind, message.start_time_unix_nano) == (3, 5)
    assert message.end_time_unix_nano > 5
    assert {one.key: one.value.int_value or one.value.string_value for one in message.attributes} == {
        "forebay.items": 3,
        "forebay.destination": "lake",
    }
    assert [link.trace_id.hex() for link in message.links] == [other.trace_id]
    assert (message.status.code, message.status.message) == (Status.STATUS_CODE_ERROR, "network")
