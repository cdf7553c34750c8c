"""The statements of dispatch, each in a file of its own: `sql/NAME.sql`."""

from __future__ import annotations

from forebay.broker.room_work import Statements

SQL = Statements("forebay.dispatch")
