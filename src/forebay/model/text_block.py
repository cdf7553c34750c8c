"""Values of a column one behind the other, in one piece of memory, as they will lie in a record.

Many small objects cost more than their bytes: a thread that looks at each of them on another processor fetches each of
them from there. So values that came together stay together, from the request to the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import final, overload

from forebay.model.ids import CountedIds
from forebay.model.message import Payload


@final
class TextBlock(Sequence[bytes]):
    """`ends` says where each value ends in `data`; it is a range where all have one size."""

    __slots__ = ("data", "ends")

    def __init__(self, data: bytes, ends: Sequence[int]) -> None:
        self.data = data
        self.ends = ends

    @classmethod
    def of(cls, values: Sequence[Payload]) -> TextBlock:
        return cls(b"".join(values), list(accumulate(map(len, values))))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> TextBlock:
        if type(texts) is CountedIds and texts.size:
            data = texts.joined().encode()
            return cls(data, range(texts.size, len(data) + 1, texts.size))
        joined = "".join(texts)
        if not joined.isascii():
            return cls.of([text.encode() for text in texts])
        sizes = list(map(len, texts))
        size = sizes[0] if sizes else 0
        is_even = size > 0 and sizes.count(size) == len(sizes)
        return cls(joined.encode(), range(size, len(joined) + 1, size) if is_even else list(accumulate(sizes)))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        return iter([data[start:end] for start, end in pairwise(chain((0,), self.ends))])

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return list(self)[place]
        place = range(len(self))[place]
        return self.data[self.ends[place - 1] if place else 0 : self.ends[place]]
