"""Parcels by filter, newest first: one statement, of which only the conditions that are requested are sent.

A condition that is switched off inside of the statement (`:flow = '' OR flow = :flow`) would keep both databases from
using an index, and every listing would read all parcels. So a line of `sql/parcels_find.sql` that begins with
`--if NAME ` counts only where NAME is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from forebay.broker.room_work import Ask, Statement, Value, Work, statement
from forebay.dispatch.values import PARCEL_STATES
from forebay.dispatch.views import ParcelFilter, ParcelInfo

UNFINISHED = "unfinished"
"""In place of a state: parcels that are not finished."""
FEW = ("LEASED", "QUEUED", "JOINING", "EXPORTING")
"""States of steps of which there are few, however many parcels there are, and which have an index of their own."""
_annotations = msgspec.json.Decoder(dict[str, str])


def find_parcels(wanted: ParcelFilter, limit: int, after: tuple[int, str] | None = None) -> Work[list[ParcelInfo]]:
    """Parcels that fit, newest first; `after`: place and did of the last one of the page before."""
    conditions = _conditions(wanted)
    if after is not None:
        conditions |= {"after_place": after[0], "after_did": after[1]}
    names = frozenset(conditions) | _switches(wanted)
    rows = yield Ask(_statement(names), {**conditions, "limit": limit})
    return [_parcel(row) for row in rows]


def find_parcel(did: str) -> Work[ParcelInfo | None]:
    """The parcel of this did; None when there is none."""
    rows = yield Ask(_statement(frozenset({"anywhere", "exactly"})), {"exactly": did, "limit": 1})
    return _parcel(rows[0]) if rows else None


def _parcel(row: Sequence[object]) -> ParcelInfo:
    parcel = ParcelInfo(*row)  # type: ignore[arg-type]
    return parcel._replace(annotations=_annotations.decode(str(parcel.annotations)))


def _conditions(wanted: ParcelFilter) -> dict[str, Value]:
    conditions: dict[str, Value] = {
        name: value
        for name in ("flow", "action", "action_class", "error", "since_us", "before_us", "did")
        if (value := getattr(wanted, name)) not in ("", None)
    }
    state = wanted.state or ("ERROR" if wanted.error else "")
    if state in PARCEL_STATES:
        conditions["state"] = state
    elif state not in ("", UNFINISHED):
        conditions["step_state"] = state
    return conditions


def _switches(wanted: ParcelFilter) -> frozenset[str]:
    """Parts of the statement that have no value of their own."""
    begins_from = wanted.state.lower() if wanted.state in FEW else "anywhere"
    switches = {begins_from}
    if wanted.state == UNFINISHED:
        switches.add(UNFINISHED)
    is_of_step = wanted.state not in ("", UNFINISHED, *PARCEL_STATES)
    if is_of_step or wanted.action or wanted.action_class or wanted.error:
        switches.add("of_step")
    return frozenset(switches)


@cache
def _statement(names: frozenset[str]) -> Statement:
    """One for each set of conditions that was requested."""
    lines = files("forebay.dispatch").joinpath("sql", "parcels_find.sql").read_text().splitlines()
    kept = []
    for line in lines:
        if line.startswith("--if "):
            _, name, condition = line.split(" ", 2)
            if name in names:
                kept.append(condition)
        else:
            kept.append(line)
    return statement("parcels_find", "\n".join(kept))
