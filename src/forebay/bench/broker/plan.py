"""How much is done: one plan for the figures that count, one for trying out whether all of it works."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import Permanent

PEERS = ("valkey", "nats", "rabbitmq")
"""What may be left out. PostgreSQL may not: Forebay's own store runs on it."""

MESSAGE_BYTES = 1024
BATCH = 100
SINGLE_CONNECTIONS = 64
MANY_CONNECTIONS = 256
BATCH_CONNECTIONS = 8
FEW_PARTITIONS = 10
BACKLOG_PARTITIONS = 100
BACKLOG = 10_000_000
QUICK_BACKLOG = 200_000

_DISK_BYTES_PER_MESSAGE = 1400
"""A message of 1 KiB with its id, in the log and in the index."""
_DISK_BYTES_BESIDES = 12 << 30
_QUICK_DISK_BYTES_BESIDES = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    round_seconds: float = 1.5
    """How long a client pushes in a round."""
    single_requests: int = 10_000
    batch_requests: int = 2_000
    """Prepared requests in a round."""
    drained: int = 40_000
    """Messages popped and acknowledged in a round."""
    latencies: int = 200
    partitions: int = 10_000
    backlog: int = BACKLOG
    without: frozenset[str] = frozenset()
    is_quick: bool = False

    @classmethod
    def quick(cls, *, rounds: int = 2, backlog: int = QUICK_BACKLOG, without: frozenset[str] = frozenset()) -> Plan:
        """Small in everything: it shows that the suite works, and says little about speed."""
        return cls(
            rounds=rounds,
            round_seconds=0.1,
            single_requests=400,
            batch_requests=16,
            drained=1_600,
            latencies=20,
            partitions=200,
            backlog=backlog,
            without=without,
            is_quick=True,
        )

    @property
    def few_messages(self) -> int:
        """What a queue with hardly any backlog holds: enough for all rounds of pops and some more."""
        return 2 * (self.rounds + 1) * self.drained

    def check_room(self, directory: Path) -> None:
        """Refuse before the first message rather than fail at the last."""
        besides = _QUICK_DISK_BYTES_BESIDES if self.is_quick else _DISK_BYTES_BESIDES
        needed = self.backlog * _DISK_BYTES_PER_MESSAGE + besides
        free = shutil.disk_usage(directory).free
        if free < needed:
            raise Permanent(
                f"{directory}: {free / 2**30:.1f} GiB are free, and a backlog of {self.backlog:,} messages "
                f"with all the rest takes {needed / 2**30:.1f} GiB",
                remedy="Name another disk with --directory, or a smaller --backlog",
            )


def text(size: int = MESSAGE_BYTES) -> str:
    """Letters whose JSON form has `size` bytes and that Snappy cannot shrink."""
    return base64.b64encode(os.urandom(size)).decode()[: size - 2]
