"""Callers: which key a request came with, and what that key may do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forebay.access.patterns import QueuePatterns
from forebay.access.scopes import ALL_BITS, Scope, bits_of, names_of
from forebay.api.problems import Problem

NO_KEYS = "no keys"
"""The name of every caller of a server without keys."""


class Caller:
    """One key in force. All requests that come with it share this object."""

    __slots__ = ("bits", "digest", "id", "is_used", "name", "patterns")

    def __init__(self, key_id: str, name: str, bits: int, queues: Sequence[str] = (), digest: str = "") -> None:
        self.id = key_id
        self.name = name
        self.bits = bits
        self.patterns = QueuePatterns(queues) if queues else None
        """None: all queues."""
        self.digest = digest
        self.is_used = False
        """Since that was last noted in the store."""

    @property
    def scopes(self) -> list[str]:
        return names_of(self.bits)

    def check_scope(self, needed: int) -> None:
        """Raise 403 unless the key has one of these scopes."""
        if not self.bits & needed:
            wanted = " or ".join(names_of(needed) or ["admin"])
            raise Problem(
                403, f"the key {self.name!r} may {', '.join(self.scopes)}; this needs {wanted}", code="forbidden"
            )

    def allows(self, queue: str) -> bool:
        return self.patterns is None or self.patterns.fit(queue)

    def check_queue(self, queue: str, field: str | None = None) -> None:
        """Raise 403 unless the key is for this queue."""
        if self.patterns is not None and not self.patterns.fit(queue):
            what = repr(queue) if queue else "what is of no queue"
            raise Problem(
                403,
                f"the key {self.name!r} is for queues {self.patterns}, and not for {what}",
                code="queue_forbidden",
                field=field,
            )

    def check_queues(self, queues: Iterable[str]) -> None:
        if self.patterns is not None:
            for queue in queues:
                self.check_queue(queue)

    def check_unrestricted(self, what: str) -> None:
        """Raise 403 unless the key is for all queues."""
        if self.patterns is not None:
            raise Problem(
                403, f"the key {self.name!r} is for queues {self.patterns} alone: {what}", code="queue_forbidden"
            )


ANY_CALLER = Caller("", NO_KEYS, ALL_BITS)
"""The caller of a server without keys."""


def caller_with(key_id: str, name: str, scopes: Iterable[str], queues: Sequence[str], digest: str) -> Caller:
    return Caller(key_id, name, bits_of(scopes), queues, digest)


ADMIN_BITS = Scope.OPERATE | Scope.ADMIN
"""What is written into the audit log when it is done."""
