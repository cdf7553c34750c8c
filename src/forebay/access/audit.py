"""The log of admin actions: written with each, read the newest first, and bounded in age and rows."""

from __future__ import annotations

from forebay.access.tables import SQL
from forebay.access.values import AuditEntry
from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US

ROWS_MAX = 100_000
SUBJECT_CHARACTERS_MAX = 1_000


def note(entry: AuditEntry) -> Work[None]:
    now_us = yield Now()
    values = {
        "at_us": now_us,
        "key_id": entry.key_id,
        "key_name": entry.key_name,
        "method": entry.method,
        "route": entry.route,
        "subject": entry.subject[:SUBJECT_CHARACTERS_MAX],
        "address": entry.address,
        "status": entry.status,
    }
    yield Ask(SQL["audit_add"], values)


def entries(limit: int, before: int, key_id: str = "") -> Work[list[AuditEntry]]:
    """The newest first. `before`: only those with a lower number."""
    rows = yield Ask(SQL["audit_list"], {"limit": limit, "before": before, "key_id": key_id})
    return [AuditEntry._make([*row[2:], *row[:2]]) for row in rows]


def expire(seconds: float, rows_max: int = ROWS_MAX) -> Work[int]:
    """Remove what is older, and the oldest beyond so many rows; how many."""
    now_us = yield Now()
    values = {"before_us": now_us - round(seconds * SECOND_US), "kept": rows_max}
    return len((yield Ask(SQL["audit_expire"], values)))
