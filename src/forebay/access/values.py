"""Arguments and results of what access does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class NewKey(NamedTuple):
    """A key that is to be made."""

    name: str
    scopes: Sequence[str]
    queues: Sequence[str] = ()
    """Patterns; none: all queues."""
    lasts_seconds: float | None = None
    made_by: str = ""


class KeyInfo(NamedTuple):
    """A key as it is kept: all but its text, which is kept nowhere."""

    key_id: str
    name: str
    digest: str
    previous_digest: str
    """Of the text before the last rotation; empty: none."""
    previous_until_us: int
    scopes: tuple[str, ...]
    queues: tuple[str, ...]
    made_by: str
    created_us: int
    expires_us: int | None
    revoked_us: int | None
    used_us: int | None

    def state_at(self, now_us: int) -> str:
        if self.revoked_us is not None:
            return "revoked"
        return "expired" if self.expires_us is not None and self.expires_us <= now_us else "active"

    @property
    def is_full_admin(self) -> bool:
        """Whether it can make and revoke keys."""
        return "admin" in self.scopes and not self.queues


class Keys(NamedTuple):
    """All keys, as of a version."""

    version: int
    is_in_force: bool
    keys: Sequence[KeyInfo]
    now_us: int
    """The store's time when they were read."""


class Session(NamedTuple):
    key_digest: str
    expires_us: int


class AuditEntry(NamedTuple):
    """An admin action. `number` and `at_us` are given when it is kept."""

    key_id: str
    key_name: str
    method: str
    route: str
    subject: str
    address: str
    status: int
    number: int = 0
    at_us: int = 0
