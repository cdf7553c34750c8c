"""Where an exporter's batches come from: a send queue, or a consumer group of the broker."""

from __future__ import annotations

from typing import Protocol

from forebay.export.batch import ExportBatch
from forebay.export.outcome import SendFailed
from forebay.sendqueue.entry import Entry

Claim = Entry[ExportBatch]


class Feed(Protocol):
    """Batches to send. Taking is claiming: a batch is gone when it is confirmed or buried, and not before."""

    async def open(self) -> None: ...

    async def claim(self) -> Claim | None:
        """The next batch, as soon as there is one; None after `stop_claims`."""

    async def confirm(self, claim: Claim) -> None:
        """The destination has it."""

    async def release(self, claim: Claim, delay_seconds: float) -> None:
        """Not sent: to be claimed again after a while, at its place in line."""

    async def put_back(self, claim: Claim) -> None:
        """It is not to be sent now (the export is paused): as if it had not been claimed."""

    async def bury(self, claim: Claim, part: ExportBatch, failed: SendFailed) -> None:
        """Keep a part of the claim as a dead letter. Raises OSError or Transient if that is not possible now."""

    def hasten(self) -> None:
        """The destination is back: what was released need not wait."""

    def depth(self) -> int:
        """How many batches wait, as far as that is known."""

    def stop_claims(self) -> None:
        """No more claims: those that wait for one get None."""

    async def close(self) -> None:
        """After the last claim is confirmed or released. What is left is kept."""
