"""Messages on their way out of the client: in a request of their own, or together with others that wait as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import msgspec

from forebay.client.merging import Merger
from forebay.client.messages import Pushed, PushSummary, Refused, Unreachable
from forebay.client.outgoing import Outgoing, encoded, joined, requests_of
from forebay.client.transport import Transport
from forebay.errors import ForebayError

_MERGERS_MAX = 1000
_decode_pushed = msgspec.json.Decoder(list[Pushed]).decode
_decode_summary = msgspec.json.Decoder(PushSummary).decode


class Pusher:
    """Items are the bytes of JSON: a list of messages for `all`, one message for `one`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._mergers: dict[str, Merger[Pushed]] = {}
        self._buffered_mergers: dict[tuple[str, int, int], Merger[PushSummary]] = {}

    async def in_requests(self, items: Sequence[Outgoing]) -> list[Pushed]:
        """In as many requests as they need, in order."""
        pushed: list[Pushed] = []
        for some, text in requests_of(items):
            with _noting(len(pushed), len(items)):
                pushed += await self._halved(some, text)
        return pushed

    async def _halved(self, items: Sequence[Outgoing], text: bytes) -> list[Pushed]:
        """In one request, or in smaller ones if the server is set to take less in one."""
        try:
            return await self.all(text)
        except Refused as refused:
            if refused.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or len(items) == 1:
                raise
        half = len(items) // 2
        first = await self._halved(items[:half], encoded(items[:half]))
        with _noting(len(first), len(items)):
            return first + await self._halved(items[half:], encoded(items[half:]))

    async def in_buffered_requests(
        self, items: Sequence[Outgoing], buffer_ms: int | None, buffer_max: int | None
    ) -> PushSummary:
        summaries = [await self.all_buffered(text, buffer_ms, buffer_max) for _, text in requests_of(items)]
        if not summaries:
            return await self.all_buffered(b"[]", buffer_ms, buffer_max)
        return msgspec.structs.replace(summaries[-1], messages=sum(summary.messages for summary in summaries))

    async def all(self, items: bytes) -> list[Pushed]:
        _, answer = await self._transport.request("POST", "/api/v1/push", b'{"items":%b}' % items)
        pushed = _decode_pushed(answer)
        failed = [one for one in pushed if one.status == "failed"]
        if failed:
            what = "may not be" if any(one.outcome_unknown for one in failed) else "were not"
            raise Unreachable(f"{len(failed)} of {len(pushed)} messages {what} accepted: {failed[0].error}")
        return pushed

    async def all_buffered(self, items: bytes, buffer_ms: int | None, buffer_max: int | None) -> PushSummary:
        # A caller that gives one of the two gets the server's usual value for the other.
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


@contextmanager
def _noting(stored: int, total: int) -> Iterator[None]:
    """An error says how many messages are stored whatever becomes of the rest."""
    try:
        yield
    except ForebayError as error:
        if stored:
            error.add_note(f"{stored} of {total} messages were accepted before")
        raise


def _forget_idle(mergers: dict[Any, Any]) -> None:
    """So many queues that are not pushed to any more must not be remembered for ever."""
    if len(mergers) >= _MERGERS_MAX:
        for key in [key for key, merger in mergers.items() if merger.is_idle]:
            del mergers[key]
