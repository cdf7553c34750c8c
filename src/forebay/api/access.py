"""Which caller may do what: the keys in force, and the key that a request came with.

Keys come from the store (`forebay.access`, by way of `keyring`) and from a keys file (`keys_file`); both count beside
each other. A request gives its key as `Authorization: Bearer KEY` or `X-API-Key: KEY`, or has a session's cookie
(`sessions`). A key that is given counts before a cookie.

Where no keys are in force every caller may do everything, which is why a server without keys listens on this machine
only (see `forebay serve`). Keys that were once in force in the store stay so, also when none of them is valid any more.

A client sends the same head again and again (`request_head_cache`): which key it holds is looked up once, by digest,
and remembered by the head's place in memory until the keys change. Digests are compared in constant time; what a lookup
by digest could tell by its time is of no use, since no client can choose a digest.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

from forebay.access.digests import digest_of
from forebay.access.digests import new_key as new_key
from forebay.api.callers import Caller
from forebay.api.problems import Problem
from forebay.api.request_head_cache import HEADS_MAX

Headers = Iterable[tuple[bytes, bytes]]


class Access:
    """One per server; `replace` puts other keys in force."""

    __slots__ = ("_of_heads", "callers", "is_in_force")

    def __init__(self) -> None:
        self.callers: Mapping[str, Caller] = {}
        """By digest."""
        self.is_in_force = False
        self._of_heads: dict[tuple[int, str], tuple[Headers, Caller]] = {}
        """By place in memory and address: a right key that an address has guessed must not pass for another's."""

    def replace(self, callers: Mapping[str, Caller], *, is_in_force: bool) -> None:
        """From the next request on."""
        self.callers = callers
        self.is_in_force = is_in_force
        self._of_heads = {}

    def of_head(self, headers: Headers, address: str) -> Caller | None:
        """The caller, if the very same head came from there before, with a key that counts."""
        found = self._of_heads.get((id(headers), address))
        return found[1] if found is not None and found[0] is headers else None

    def remember(self, headers: Headers, address: str, caller: Caller) -> None:
        """Heads that are parsed each time are lists, and are not remembered."""
        if type(headers) is tuple:
            if len(self._of_heads) >= HEADS_MAX:
                self._of_heads.clear()
            self._of_heads[id(headers), address] = headers, caller

    def of_digest(self, digest: str) -> Caller | None:
        found = self.callers.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None


def given_key(headers: Headers) -> str | None:
    """The digest of the key that the headers hold."""
    for name, value in headers:
        if name == b"x-api-key":
            return digest_of(value.strip())
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return digest_of(value[7:].strip())
    return None


def unauthorized(detail: str) -> Problem:
    return Problem(401, detail, code="unauthorized", headers=((b"www-authenticate", b"Bearer"),))
