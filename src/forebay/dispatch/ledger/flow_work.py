"""What has been done for each flow: counted in the transaction that commits it, whichever worker did it.

So the counts are right with any number of workers, whatever is killed, and for as long as the flow is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.ledger.history import count
from forebay.dispatch.routing import LeasedStep
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Outcome
from forebay.dispatch.views import FlowWork

_LEASES, _ROWS, _BAD, _SKIPPED, _LOST = "leases", "rows", "bad", "skipped", "lost"
KINDS = (_LEASES, _ROWS, _BAD, _SKIPPED, _LOST)


def _name(kind: str, flow: str) -> str:
    return f"flow_{kind} {flow}"


def count_work(finished: Sequence[tuple[LeasedStep, str, Outcome]]) -> Work[None]:
    """Add what a completed lease did. Last in its transaction."""
    numbers: Counter[str] = Counter({_name(_LEASES, flow): 1 for flow in {step.flow for step, _, _ in finished}})
    for step, state, outcome in finished:
        # A message is counted once, however many steps its parcel goes through, and not for an attempt that failed.
        if step.step == 0 and state != "ERROR":
            numbers[_name(_ROWS, step.flow)] += outcome.rows_in or 0
        numbers[_name(_BAD, step.flow)] += outcome.bad or 0
        numbers[_name(_SKIPPED, step.flow)] += outcome.skipped or 0
        numbers[_name(_LOST, step.flow)] += sum(missing.messages for missing in outcome.missing)
    yield from count(numbers)


def count_lost(messages: Mapping[str, int]) -> Work[None]:
    """Add messages that flows did not get because they were gone. Last in its transaction."""
    yield from count({_name(_LOST, flow): lost for flow, lost in messages.items()})


def forget_work(flow: str) -> Work[None]:
    yield Ask(SQL["numbers_remove"], {"names": [[_name(kind, flow)] for kind in KINDS]})


def flow_work() -> Work[dict[str, FlowWork]]:
    """By flow; one that has done nothing and has no error is left out."""
    found: dict[str, dict[str, int]] = {}
    for name, value in (yield Ask(SQL["numbers_of_flows"])):
        kind, _, flow = str(name).removeprefix("flow_").partition(" ")
        found.setdefault(flow, {})[kind] = value
    errors = {flow: (parcels, text) for flow, parcels, text in (yield Ask(SQL["flows_newest_error"]))}
    return {
        flow: FlowWork(**dict.fromkeys(KINDS, 0) | found.get(flow, {}), errors=parcels, error=text)
        for flow in sorted({*found, *errors})
        for parcels, text in [errors.get(flow, (0, ""))]
    }
