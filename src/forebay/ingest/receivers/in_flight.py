"""What requests hold in memory, in all receivers together, from their first byte to their answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forebay.ingest.receivers.decoding import BodyRefused


class InFlight:
    """Counts bytes of bodies, as they came and decompressed, and refuses what is beyond the limit with 429.

    A request that is alone always fits: the limit is at least what one may hold.
    """

    def __init__(self, bytes_max: int, *, body_bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = max(bytes_max, 2 * body_bytes_max)

    @contextmanager
    def request(self) -> Iterator[Share]:
        """The share of one request, which ends with it."""
        share = Share(self)
        try:
            yield share
        finally:
            self.bytes -= share.bytes


class Share:
    """What one request holds."""

    def __init__(self, whole: InFlight) -> None:
        self.bytes = 0
        self._whole = whole

    def add(self, size: int) -> None:
        """Raises BodyRefused if all requests together would hold too much."""
        whole = self._whole
        if whole.bytes + size > whole.bytes_max:
            raise BodyRefused(429, f"requests hold {whole.bytes} of {whole.bytes_max} bytes; send it again later")
        whole.bytes += size
        self.bytes += size
