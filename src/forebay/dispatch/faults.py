"""What dispatch refuses of flows and parcels, with the numbers and the remedy.

| error            | HTTP | when                                                             |
|------------------|------|------------------------------------------------------------------|
| `FlowRefused`    | 400  | a definition cannot be run; all of its faults at once            |
| `PolicyRefused`  | 400  | an auto-resume policy that fits nothing, or whose numbers do not work |
| `AnnotationsRefused` | 400 | annotations are too many or too long |
| `OutcomeRefused` | 400  | what a worker says of a parcel cannot be |
| `RecordsRefused` | 400  | records cannot start at the step that is named |
| `UnknownFlow`    | 404  | no flow of the name                                              |
| `UnknownParcel`  | 404  | no parcel of the did                                             |
| `FlowUnfinished` | 409  | a flow cannot be forgotten while parcels of it are unfinished    |
| `AnnotationKept` | 409  | an annotation has another value, and overwriting was not requested |

A replay whose messages are gone is `RangeIncomplete` (410), or `QueueReplaced` (409) where the queue was made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.errors import Permanent


class FieldFault(NamedTuple):
    """One fault: the field as it stands in JSON (`steps[0].retry.maxAttempts`), and what is wrong with it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class FlowRefused(Permanent):
    """The definition cannot be run. `faults` lists all that is wrong with it, not just the first."""

    def __init__(self, flow: str, faults: Sequence[FieldFault]) -> None:
        super().__init__(f"flow {flow!r}: " + "; ".join(map(str, faults)))
        self.faults = tuple(faults)
        self.field = faults[0].field


class PolicyRefused(Permanent):
    """The auto-resume policy cannot be used. `faults` lists all that is wrong with it."""

    def __init__(self, policy: str, faults: Sequence[FieldFault]) -> None:
        super().__init__(f"policy {policy!r}: " + "; ".join(map(str, faults)))
        self.faults = tuple(faults)
        self.field = faults[0].field


class OutcomeRefused(Permanent):
    """What a worker says of a parcel cannot be. Nothing was changed; the lease lasts."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class RecordsRefused(Permanent):
    """Records cannot start at that step. Nothing was done; `field` says which part of the request is wrong."""

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.field = field


class UnknownFlow(Permanent):
    """There is no flow of that name: define it first."""

    def __init__(self, flow: str) -> None:
        super().__init__(f"no flow {flow!r}", remedy="Define it first")
        self.flow = flow


class UnknownParcel(Permanent):
    """There is no parcel of that did, or it was finished longer ago than parcels are kept."""

    def __init__(self, did: str) -> None:
        super().__init__(
            f"no parcel {did!r}", remedy="A finished parcel is kept for dispatch.finished_retention_seconds"
        )
        self.did = did


class FlowUnfinished(Permanent):
    """The flow has parcels that are not finished; forgetting it would leave them without steps. Nothing was changed."""

    def __init__(self, flow: str, unfinished: int) -> None:
        super().__init__(
            f"flow {flow!r} has {unfinished} unfinished parcel{'' if unfinished == 1 else 's'}",
            remedy="Stop its source and wait until they are finished, or cancel them",
        )
        self.unfinished = unfinished


class AnnotationKept(Permanent):
    """The parcel has the annotation with another value. Nothing was changed; ask for overwriting to replace it."""

    def __init__(self, did: str, key: str) -> None:
        super().__init__(f"parcel {did!r} has another annotation {key!r}", remedy="Allow it to be overwritten")
        self.key = key


class AnnotationsRefused(Permanent):
    """The annotations are too many or too long. Nothing was changed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
