"""How much is done: one plan for the figures that count, one for trying out whether all of it works."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import Permanent

MESSAGE_BYTES = 200
MESSAGES = 1_000_000
QUICK_MESSAGES = 20_000
PUSHED_PER_SECOND = 1_000

_DISK_BYTES_PER_MESSAGE = 4_000
"""In the queue, in parquet, and in what a round writes on either side before it is removed."""
_DISK_BYTES_BESIDES = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    messages: int = MESSAGES
    live_seconds: float = 15.0
    """How long messages are pushed in a round of push to result."""
    idle_seconds: float = 20.0
    settle_seconds: float = 10.0
    """Between the last result and the look at what idling costs."""
    live_rounds: int = 3
    idle_rounds: int = 1

    @property
    def json_messages(self) -> int:
        """In each queue whose payloads are parsed."""
        return self.messages // 4

    @classmethod
    def quick(cls, *, rounds: int = 1, messages: int = QUICK_MESSAGES) -> Plan:
        """Small in everything: it shows that the suite works, and says little about speed."""
        return cls(rounds, messages, live_seconds=1.0, idle_seconds=1.0, settle_seconds=0.5, live_rounds=1)

    def check_room(self, directory: Path) -> None:
        """Refuse before the first message rather than fail at the last."""
        needed = self.messages * _DISK_BYTES_PER_MESSAGE + _DISK_BYTES_BESIDES
        free = shutil.disk_usage(directory).free
        if free < needed:
            raise Permanent(
                f"{directory}: {free / 2**30:.1f} GiB are free, and {self.messages:,} messages with all that is made "
                f"of them take {needed / 2**30:.1f} GiB",
                remedy="Name another disk with --directory, or fewer --messages",
            )
