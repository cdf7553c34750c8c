"""What is refused here."""

from __future__ import annotations

from forebay.errors import Permanent


class KeyRefused(Permanent):
    """A key cannot be made as requested: its name, scopes, patterns or times are wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.reason = message


class KeyNameTaken(Permanent):
    """Another key that is not revoked has this name. Choose another, or revoke that one first."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a key {name!r} already")


class KeysFull(Permanent):
    """There are too many keys. Revoked ones are removed when they are as old as the audit log is kept."""

    def __init__(self, keys_max: int) -> None:
        super().__init__(f"there are {keys_max} keys, and no more are kept")


class UnknownKey(Permanent):
    """There is no key of this id, or it is revoked."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no key {key_id!r}")


class LastAdminKey(Permanent):
    """It is the last key that could make others. Make another admin key first."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is the last admin key of all queues: without it no key could be made or revoked",
            remedy="Make another with the scope admin first",
        )
