"""The action in Python of the flows that are measured."""

from __future__ import annotations

from forebay.flows import Record, RecordAction, RecordContext, Result


class Shorten(RecordAction):
    """The first part of a page."""

    schema = "user STRING, page STRING, ms INT"

    def transform(self, record: Record, context: RecordContext) -> Result:
        page = record["page"].rpartition("/")[0]
        return Result({"user": record["user"], "page": page, "ms": record["ms"]})
