"""What is kept about flows, in SQLite."""

from __future__ import annotations

from typing import Any

from forebay.broker.flow_rows import FlowRow
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.clock import SECOND_US, Clock


class Flows:
    """For the store's thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def all(self) -> list[FlowRow]:
        return [_row(found) for found in self._database.execute(query("flows_list"), {}).fetchall()]

    def report(self, name: str, worker: str, report: bytes, quiet_seconds: float, is_released: bool) -> FlowRow:
        values = {
            "name": name,
            "worker": worker,
            "report": report,
            "now_us": self._clock.now_us(),
            "quiet_us": round(quiet_seconds * SECOND_US),
            "is_released": is_released,
        }
        self._database.execute(query("flow_report"), values)
        return self._one(name)

    def pause(self, name: str, is_paused: bool) -> FlowRow:
        self._database.execute(query("flow_pause"), {"name": name, "is_paused": is_paused})
        return self._one(name)

    def forget(self, name: str) -> bool:
        return self._database.execute(query("flow_forget"), {"name": name}).rowcount > 0

    def _one(self, name: str) -> FlowRow:
        return _row(self._database.execute(query("flow_find"), {"name": name}).fetchone())


def _row(found: tuple[Any, ...]) -> FlowRow:
    name, worker, report, updated_us, is_paused, resumes = found
    # A default in the schema is text.
    return FlowRow(
        name, worker, report if isinstance(report, bytes) else report.encode(), updated_us, bool(is_paused), resumes
    )
