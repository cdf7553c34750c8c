"""The warm tier: the order in which parcels are offered to workers, kept where it can be had at once.

The tier is a hint, never the only copy. `parcel_flows` in the store's database says which parcels wait; the tier says
which of them to try first. A lease *takes* entries out of the tier, then turns their rows from QUEUED to LEASED; a row
that is no longer QUEUED is left alone, so an entry too many costs a look, and an entry too few is found by counting:

    added after the commit      a crash in between: the row is QUEUED, the entry missing
    taken before the claim      a crash in between: the same
    kept in a cache             restarted, flushed, evicted, out of memory: many are missing

Sizes are compared with the database's every few seconds. A class whose numbers stay too low is rebuilt from
`parcel_flows`; so are all classes when the tier has lost its *marker*, which every rebuild leaves behind. While the
tier is away (`WarmUnavailable`), leases ask the database itself.

What every variant promises (tests/contract/test_warm.py):

- within a class the flows take turns, with `same_step` one of them at a time; within a flow the lowest place is taken
  first, places being any whole number up to 2^63 - 1;
- an entry is given by one `take` only, however many servers take at once;
- `add` of what is there changes nothing; `remove` of what is not there changes nothing;
- every call ends within the tier's time limit, with a result or with `WarmUnavailable`. After `WarmUnavailable` the
  call may have been done, may not have been, or may yet be.

| variant | kept | shared by servers | lost |
|---|---|---|---|
| `warms.embedded` | in this process | no: each has its own; a claim decides | when the process ends |
| `warms.valkey` | in Valkey | yes | when Valkey is restarted, flushed, or evicts |
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from forebay.errors import Transient

STEP_LOOKS = 2_000
"""How many entries of a flow are looked at for those of one step. Entries of a step mostly follow each other: a parcel
keeps its place, so those that went on stand together before those that came later."""


class WarmEntry(NamedTuple):
    """A parcel's step that waits warm."""

    action_class: str
    flow: str
    place: int
    did: str
    step: int


class WarmUnavailable(Transient):
    """The warm tier does not answer. Parcels are leased from the database meanwhile; nothing is lost."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__(f"the warm tier at {where} is away: {cause}", remedy="Leases ask the database meanwhile")
        self.cause = cause


class WarmTier(Protocol):
    async def add(self, entries: Sequence[WarmEntry]) -> None:
        """Offer these, of any classes. What is offered already stays where it is."""

    async def take(
        self, action_class: str, parcels_max: int, *, without: Collection[str] = (), same_step: bool = False
    ) -> list[WarmEntry]:
        """Take up to so many out of a class, its flows in turn; `without` names flows that are passed over.

        With `same_step` only of the flow whose turn it is, and only of its first entry's step, as far as they stand
        among the flow's first `STEP_LOOKS` entries. The others keep their places.
        """

    async def remove(self, entries: Sequence[WarmEntry]) -> None:
        """Offer these no more."""

    async def sizes(self) -> Mapping[str, int]:
        """How many entries each class has; a class that has none may be missing."""

    async def marker(self) -> str:
        """What the last `rebuild` left behind. Empty: the tier was emptied since, or never built."""

    async def rebuild(self, action_class: str, pages: AsyncIterable[Sequence[WarmEntry]]) -> None:
        """Forget what is known of a class, then offer what the pages hold, then leave a marker.

        Entries that are added or taken meanwhile stay added; some that were taken may be offered once more.
        """

    async def close(self) -> None:
        """End what runs in the background. What others can see of the tier stays."""
