"""A remote write request that was refused because of some of its samples: find those, and let the others be stored.

Prometheus refuses a sample that is older than what it has of the series ("out of order", "out of bounds", "too old"),
or has another value for the same time ("duplicate sample"). One such sample is enough: nothing of the request is
stored. So the request is sent again in pieces.

1. In layers: the oldest sample of each series, then the next one of each, and so on. Inside a series the order is kept,
   and a sample that is refused does not take newer ones of its series with it.
2. A layer that is refused is halved until what is refused is alone. That is counted as rejected.

A batch whose confirmation was lost is refused as a whole when newer samples are there already. Halving it down to its
last sample would prove that with two requests for each: a layer of which `REFUSALS_MAX` pieces were refused and none
was taken is held to be refused as a whole. A batch that needs more than `REQUESTS_MAX` requests is given up as one,
which makes it a dead letter: it can be replayed.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

from forebay.export.destination import Receipt
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import WriteRequest, parsed

REFUSALS_MAX = 32
REQUESTS_MAX = 1000

_REFUSED = re.compile(r"out[ -]of[ -](order|bounds)|duplicate[ -](sample|timestamp)|too[ -]old", re.I)
_OF_SAMPLES = (ErrorClass.CLIENT_ERROR, ErrorClass.SERVER_ERROR)
"""Some versions answer 500 for a sample that is too old, although no later attempt will end otherwise."""

Post = Callable[[bytes], Awaitable[None]]
"""Send a WriteRequest. Raises SendFailed."""
Layer = list[Any]
"""TimeSeries, each of another series and with one sample."""


def is_about_samples(failed: SendFailed) -> bool:
    """Whether a destination refused a request because of samples in it."""
    return failed.error in _OF_SAMPLES and _REFUSED.search(failed.message) is not None


async def send_in_pieces(body: bytes, refusal: SendFailed, post: Post) -> Receipt:
    """Send what was refused, an encoded WriteRequest, in pieces. Raises SendFailed if the batch has to be tried again:
    the destination is away, or there is no end to it."""
    pieces = _Pieces(post)
    for layer in layers(parsed(Kind.REMOTE_WRITE, body)):
        await pieces.send(layer)
    return Receipt(pieces.rejected, refusal.message)


def layers(request: Any) -> list[Layer]:
    """The first sample of each series by time, the second of each, and so on."""
    found: dict[bytes, list[Any]] = defaultdict(list)
    for series in request.timeseries:
        labels = type(series)(labels=series.labels).SerializeToString(deterministic=True)
        found[labels] += (
            [series] if len(series.samples) < 2 else [_alone(series, at) for at in range(len(series.samples))]
        )
    for of_series in found.values():
        of_series.sort(key=lambda series: series.samples[0].timestamp if series.samples else 0)
    depth = max(map(len, found.values()), default=0)
    return [[of_series[at] for of_series in found.values() if at < len(of_series)] for at in range(depth)]


def _alone(series: Any, at: int) -> Any:
    copy = type(series)()
    copy.CopyFrom(series)  # with all that is not described here, such as exemplars
    del copy.samples[:]
    copy.samples.append(series.samples[at])
    return copy


class _Pieces:
    def __init__(self, post: Post) -> None:
        self.rejected = 0
        self._post = post
        self._requests = 0

    async def send(self, layer: Layer) -> None:
        refusals, is_any_taken = 0, False
        waiting = deque([layer])
        while waiting:
            piece = waiting.popleft()
            if await self._is_taken(piece):
                is_any_taken = True
                continue
            refusals += 1
            if refusals >= REFUSALS_MAX and not is_any_taken:
                self.rejected += len(layer)
                return
            if len(piece) == 1:
                self.rejected += 1
            else:
                middle = len(piece) // 2
                waiting += [piece[:middle], piece[middle:]]

    async def _is_taken(self, piece: Layer) -> bool:
        self._requests += 1
        if self._requests > REQUESTS_MAX:
            message = f"refused sample by sample: {REQUESTS_MAX} requests were not enough to find all refused ones"
            raise SendFailed(ErrorClass.CLIENT_ERROR, message)
        try:
            await self._post(WriteRequest(timeseries=piece).SerializeToString())
        except SendFailed as failed:
            if not is_about_samples(failed):
                raise
            return False
        return True
