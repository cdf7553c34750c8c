"""What a load asks of a system. A *lane* is one of its connections, with the producer or consumer that uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class System(Protocol):
    place: str
    """The queue, stream or table in use."""

    async def open(self, url: str, lanes: int) -> None:
        """Connect, once per lane."""

    async def close(self) -> None: ...

    async def empty_place(self) -> None:
        """Leave the old place, removing it, for a new and empty one."""

    def prepared(self, texts: Sequence[str], lane: int) -> Any:
        """Messages in the form in which `push` takes them again and again."""

    async def push(self, lane: int, messages: Any) -> None:
        """Push all of them in one go, and return when the system has promised to keep them."""

    async def pop(self, lane: int, count: int, *, wait: bool = False) -> Sequence[Any]:
        """Up to `count` messages, in the form in which `acknowledge` takes them."""

    async def acknowledge(self, messages: Sequence[Any]) -> None: ...


class PushesOnly:
    """For systems whose way out is not compared."""

    async def pop(self, lane: int, count: int, *, wait: bool = False) -> Sequence[Any]:
        raise NotImplementedError(f"nothing is popped from {type(self).__name__} here")

    async def acknowledge(self, messages: Sequence[Any]) -> None:
        raise NotImplementedError(f"nothing is popped from {type(self).__name__} here")
