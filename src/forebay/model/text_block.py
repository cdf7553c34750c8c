"""Values of a column one behind the other, in one piece of memory, as they will lie in a record.

Many small objects cost more than their bytes: a thread that looks at each of them on another processor fetches each of
them from there. So values that came together stay together, from the request to the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from forebay.model.ids import CountedIds
from forebay.model.message import Payload


class TextBlock(Struct, frozen=True, gc=False):
    """`sizes` says how many bytes of `data` each value has."""

    data: bytes
    sizes: Sequence[int]

    @classmethod
    def of(cls, values: Sequence[Payload]) -> TextBlock:
        return cls(b"".join(values), list(map(len, values)))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> TextBlock:
        if len(texts) == 1:
            data = texts[0].encode()
            return cls(data, (len(data),))
        if type(texts) is CountedIds and texts.size:
            return cls(texts.joined().encode(), [texts.size] * len(texts))
        joined = "".join(texts)
        if not joined.isascii():
            return cls.of([text.encode() for text in texts])
        return cls(joined.encode(), list(map(len, texts)))

    def values(self) -> list[bytes]:
        data, sizes = self.data, self.sizes
        if len(sizes) == 1:
            return [data]
        return [data[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.values())
