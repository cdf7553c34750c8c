"""Leases that are finished as a whole, those that wait at the same time in one request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.client.merging import Merger
from forebay.client.outgoing import joined
from forebay.client.paths import quoted
from forebay.client.transport import Transport


class _Completed(msgspec.Struct, gc=False):
    messages: int
    """0 when the lease is lost."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_decode_one = msgspec.json.Decoder(_Completed).decode
_decode_many = msgspec.json.Decoder(list[_Completed]).decode


class Completer:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._merger: Merger[int] = Merger(self._send)

    async def complete(self, lease_id: str) -> int:
        """How many messages were completed with their lease; 0 when it is lost."""
        return await self._merger.add(_encode(lease_id))

    async def _send(self, leases: Sequence[bytes]) -> list[int]:
        if len(leases) == 1:
            path = f"/api/v1/lease/{quoted(_decode(leases[0]))}/complete"
            _, answer = await self._transport.request("POST", path)
            return [_decode_one(answer).messages]
        body = b'{"leaseIds":%b}' % joined(leases)
        _, answer = await self._transport.request("POST", "/api/v1/lease/complete", body)
        return [one.messages for one in _decode_many(answer)]
