"""OTLP's JSON is read as its specification says, and what is none is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from forebay.otlp.json_form import DEPTH_MAX, from_json
from forebay.otlp.kinds import Kind
from unit.export.test_splitting import metrics

SPAN = {"traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "eee19b7ec3c1b174", "kind": 2, "name": "s"}


def spans(**span: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**SPAN, **span}]}]}]}).encode()


def test_ids_are_hexadecimal() -> None:
    [span] = from_json(Kind.TRACES, spans(parentSpanId="EEE19B7EC3C1B173")).resource_spans[0].scope_spans[0].spans
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert span.span_id.hex() == "eee19b7ec3c1b174"
    assert span.parent_span_id.hex() == "eee19b7ec3c1b173"
    assert span.kind == 2


def test_times_may_be_texts_or_numbers_and_unknown_keys_are_ignored() -> None:
    body = spans(startTimeUnixNano="1544712660000000000", endTimeUnixNano=1544712661000000000, fromTheFuture={"a": [1]})
    [span] = from_json(Kind.TRACES, body).resource_spans[0].scope_spans[0].spans
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1544712660000000000, 1544712661000000000)


def test_metrics_are_the_same_as_in_protobuf() -> None:
    request = metrics(2, 2, 2, 3)
    body = json_format.MessageToJson(request, use_integers_for_enums=True).encode()
    assert from_json(Kind.METRICS, body) == request


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b'{"resourceSpans": {}}',
        b'{"resourceSpans": [3]}',
        spans(traceId="not hexadecimal"),
        spans(traceId=5),
        spans(name="\ud800"),
        spans(startTimeUnixNano="x"),
        spans(startTimeUnixNano=-1),
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
        b"[" * 200_000,
    ],
    ids=lambda body: body[:30].decode(errors="replace"),
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no traces request"):
        from_json(Kind.TRACES, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceMetrics", "scopeMetrics", "metrics", "traceId", "gauge", "x"]), below
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_json_is_a_request_or_refused(value: Any) -> None:
    with contextlib.suppress(ValueError):
        from_json(Kind.METRICS, json.dumps(value).encode())
