"""The ledger: what each stage accepted, and what became of it, as accounts that have to add up. Decisions only.

| stage | of what | accepted | = the sum of |
|---|---|---|---|
| `queue` | messages | stored ever, or in buffer files | buffered, stored, removed, lost |
| `group` | messages of its queue | the same | buffered, finished, waiting, leased, dead |
| `flow` | parcels that are not over | all of them | queued, cold, leased, joining, exporting, error |
| `send queue` | batches | found at the start, or pushed | waiting, failover, confirmed, dead, dropped: oldest, lost |

`removed` is what retention, clearing and deleting took, and seqs of commits that were taken back; `finished` is what is
answered, or was gone, removed or in front of where the group began. Both are what is left of the others, so that a
fault shows as a number below zero; the parts of a send queue are each counted by themselves. `forebay audit` recounts
messages, parcels, buffer files and send queues from storage (`forebay.cli.recount`, `audit_stages`). An outbox is a
queue (`.export.…`) with its export as group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

QUEUE, GROUP, FLOW, SEND_QUEUE = "queue", "group", "flow", "send queue"
STAGES = (QUEUE, GROUP, FLOW, SEND_QUEUE)
UNITS = {QUEUE: "messages", GROUP: "messages", FLOW: "parcels", SEND_QUEUE: "batches"}


class Account(NamedTuple):
    stage: str
    name: str
    """Of the queue, flow or destination."""
    group: str
    """Empty but for a group."""
    accepted: int
    parts: Mapping[str, int]

    @property
    def difference(self) -> int:
        """Accepted and nowhere, or somewhere and never accepted where it is negative."""
        return self.accepted - sum(self.parts.values())

    def faults(self) -> list[str]:
        """Why it does not add up, in words; empty if it does."""
        of = f"{self.stage} {self.name!r}" + (f" of {self.group!r}" if self.group else "")
        unit = UNITS[self.stage]
        found = [f"{of}: {count} {unit} are {part}" for part, count in self.parts.items() if count < 0]
        if self.difference:
            found.append(
                f"{of}: {self.accepted} {unit} were accepted, and {sum(self.parts.values())} are accounted for"
            )
        return found


class Totals(NamedTuple):
    """All accounts of a stage."""

    stage: str
    accounts: int
    accepted: int
    parts: Mapping[str, int]


def queue_account(name: str, *, stored_ever: int, buffered: int, kept: int, lost: int) -> Account:
    parts = {"buffered": buffered, "stored": kept, "removed": stored_ever - kept - lost, "lost": lost}
    return Account(QUEUE, name, "", stored_ever + buffered, parts)


def group_account(
    name: str, group: str, *, stored_ever: int, buffered: int, waiting: int, leased: int, dead: int
) -> Account:
    finished = stored_ever - waiting - leased - dead
    parts = {"buffered": buffered, "finished": finished, "waiting": waiting, "leased": leased, "dead": dead}
    return Account(GROUP, name, group, stored_ever + buffered, parts)


def flow_account(name: str, states: Mapping[str, int]) -> Account:
    return Account(FLOW, name, "", sum(states.values()), states)


def totals_of(accounts: Iterable[Account]) -> list[Totals]:
    """One for each stage that has accounts, in the order of the journey."""
    by_stage: dict[str, list[Account]] = {}
    for account in accounts:
        by_stage.setdefault(account.stage, []).append(account)
    found = []
    for stage in STAGES:
        own = by_stage.get(stage, [])
        parts: Counter[str] = Counter()
        for account in own:
            parts.update(account.parts)
        if own:
            found.append(Totals(stage, len(own), sum(account.accepted for account in own), dict(parts)))
    return found
