"""Payloads of messages on their way out: cut out of their record only when they are wanted one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import overload

from forebay.commitlog.plain import Packed

Part = Packed | list[bytes]


class Payloads(Sequence[bytes]):
    __slots__ = ("_parts",)

    def __init__(self, part: Part | None = None) -> None:
        self._parts: list[Part] = [] if part is None else [part]

    def add(self, part: Part) -> None:
        """Put these behind what is there."""
        self._parts.append(part)

    def join(self, others: Payloads) -> None:
        self._parts += others._parts

    def as_list(self) -> list[bytes]:
        if len(self._parts) == 1:
            return _cut(self._parts[0])
        return list(chain.from_iterable(map(_cut, self._parts)))

    def ends(self) -> list[int]:
        """Where each of them ends when they stand one behind the other."""
        if len(self._parts) == 1:
            (part,) = self._parts
            if isinstance(part, Packed) and not part.offsets[0]:
                return part.offsets[1:]
        return list(accumulate(chain.from_iterable(map(_sizes, self._parts))))

    def pieces(self) -> list[bytes | memoryview]:
        """All their bytes, one behind the other, in few pieces."""
        pieces: list[bytes | memoryview] = []
        for part in self._parts:
            if isinstance(part, Packed):
                pieces.append(memoryview(part.data)[part.start + part.offsets[0] : part.start + part.offsets[-1]])
            else:
                pieces.append(b"".join(part))
        return pieces

    def size_bytes(self) -> int:
        """Of all of them together."""
        return sum(map(size_of, self._parts))

    def may_hold(self, mark: bytes) -> bool:
        """False when none of them begins with the mark; True when one of them may."""
        return any(_has(part, mark) for part in self._parts)

    def __len__(self) -> int:
        return sum(len(part.offsets) - 1 if isinstance(part, Packed) else len(part) for part in self._parts)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.as_list())

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        return self.as_list()[place]


def _cut(part: Part) -> list[bytes]:
    if not isinstance(part, Packed):
        return part
    data, start, offsets = part
    return [data[start + a : start + b] for a, b in pairwise(offsets)]


def _sizes(part: Part) -> list[int]:
    if isinstance(part, Packed):
        return [b - a for a, b in pairwise(part.offsets)]
    return list(map(len, part))


def size_of(part: Part) -> int:
    if isinstance(part, Packed):
        return part.offsets[-1] - part.offsets[0]
    return sum(map(len, part))


def _has(part: Part, mark: bytes) -> bool:
    if isinstance(part, Packed):
        # One byte is found many times as fast as several, and the first one of ours is in no text.
        data, start, offsets = part
        return data.find(mark[0], start + offsets[0], start + offsets[-1]) >= 0
    return any(payload.startswith(mark) for payload in part)
