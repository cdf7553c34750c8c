"""What a destination does. The variants are in `destinations/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from forebay.export.batch import ExportBatch
from forebay.otlp.kinds import Kind


@dataclass(frozen=True, slots=True)
class Receipt:
    """A destination's yes. `rejected` items of the batch it did not want, and says so (`message`)."""

    rejected: int = 0
    message: str = ""

    def plus(self, other: Receipt) -> Receipt:
        """What both rejected, with the messages of both."""
        messages = (self.message, other.message)
        return Receipt(self.rejected + other.rejected, "; ".join(message for message in messages if message))


TAKEN = Receipt()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch as it goes over the wire: converted and compressed. `left_out` are items that have no form there."""

    batch: ExportBatch
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    left_out: Receipt = TAKEN

    @property
    def size(self) -> int:
        return len(self.body)


class Destination(Protocol):
    """Where batches go. `prepare` is work for a processor and may run in any thread; `send` is work for the network."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it takes."""

    @property
    def is_in_order(self) -> bool:
        """Whether batches have to arrive in the order in which they were accepted."""

    @property
    def is_prepared_inline(self) -> bool:
        """Whether `prepare` is so little work that handing it to a thread would take longer."""

    async def open(self) -> None:
        """Get ready to send. Does not connect: a destination that is away is no reason not to start."""

    def prepare(self, batch: ExportBatch) -> Prepared:
        """Convert and compress. Raises SendFailed (client_error) for a batch that cannot be converted."""

    async def send(self, prepared: Prepared) -> Receipt:
        """Hand it over and wait for the answer. Raises SendFailed for anything but a yes, and nothing else."""

    async def close(self) -> None: ...
