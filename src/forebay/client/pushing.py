"""Messages on their way out of the client: in a request of their own, or together with others that wait as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forebay.client.merging import Merger
from forebay.client.messages import Pushed, PushSummary, Unreachable
from forebay.client.outgoing import joined
from forebay.client.transport import Transport

_MERGERS_MAX = 1000
_decode_pushed = msgspec.json.Decoder(list[Pushed]).decode
_decode_summary = msgspec.json.Decoder(PushSummary).decode


class Pusher:
    """Items are the bytes of JSON: a list of messages for `all`, one message for `one`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._mergers: dict[str, Merger[Pushed]] = {}
        self._buffered_mergers: dict[tuple[str, int, int], Merger[PushSummary]] = {}

    async def all(self, items: bytes) -> list[Pushed]:
        _, answer = await self._transport.request("POST", "/api/v1/push", b'{"items":%b}' % items)
        pushed = _decode_pushed(answer)
        failed = [one for one in pushed if one.status == "failed"]
        if failed:
            what = "may not be" if any(one.outcome_unknown for one in failed) else "were not"
            raise Unreachable(f"{len(failed)} of {len(pushed)} messages {what} accepted: {failed[0].error}")
        return pushed

    async def all_buffered(self, items: bytes, buffer_ms: int | None, buffer_max: int | None) -> PushSummary:
        # Who gives one of the two gets the server's usual value for the other.
        values = (100 if buffer_ms is None else buffer_ms, 100 if buffer_max is None else buffer_max)
        _, answer = await self._transport.request(
            "POST", "/api/v1/push", b'{"bufferMs":%d,"bufferMax":%d,"items":%b}' % (*values, items)
        )
        return _decode_summary(answer)

    async def one(self, queue: str, item: bytes) -> Pushed:
        merger = self._mergers.get(queue)
        if merger is None:
            _forget_idle(self._mergers)
            merger = self._mergers[queue] = Merger(lambda items: self.all(joined(items)))
        return await merger.add(item)

    async def one_buffered(self, queue: str, item: bytes, buffer_ms: int | None, buffer_max: int | None) -> PushSummary:
        key = (queue, -1 if buffer_ms is None else buffer_ms, -1 if buffer_max is None else buffer_max)
        merger = self._buffered_mergers.get(key)
        if merger is None:

            async def send(items: Sequence[bytes]) -> list[PushSummary]:
                summary = await self.all_buffered(joined(items), buffer_ms, buffer_max)
                return [msgspec.structs.replace(summary, messages=1)] * len(items)

            _forget_idle(self._buffered_mergers)
            merger = self._buffered_mergers[key] = Merger(send)
        return await merger.add(item)


def _forget_idle(mergers: dict[Any, Any]) -> None:
    """So many queues that nobody pushes to any more must not be remembered for ever."""
    if len(mergers) >= _MERGERS_MAX:
        for key in [key for key, merger in mergers.items() if merger.is_idle]:
            del mergers[key]
