"""`to_remote_write`: rows of data points become messages, each a Prometheus WriteRequest 1.0, not compressed.

An export with `format: remote_write` sends them. Names and labels are made as `forebay.otlp.prometheus` says, from the
same columns as `to_otlp`. What has no form there (a delta, an exponential histogram) is a bad record here, while
a destination that converts OTLP itself only counts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from forebay.otlp.kinds import Kind
from forebay.otlp.prometheus import Converter, why_no_form
from forebay.spark.builtin.to_otlp import ToOtlp


class ToRemoteWrite(ToOtlp):
    """`max_points` counts data points: a histogram's is a sample for each bucket."""

    partition: ClassVar[str] = Kind.REMOTE_WRITE.value

    def open(self) -> None:
        self._converter = Converter()

    def refusal_of(self, row: Mapping[str, Any]) -> str | None:
        is_cumulative = (row.get("temporality") or "cumulative") == "cumulative"
        return why_no_form(row.get("metric") or "", row.get("kind") or "gauge", is_cumulative=is_cumulative)

    def encoded(self, body: bytes) -> bytes:
        return self._converter.convert(body).body
