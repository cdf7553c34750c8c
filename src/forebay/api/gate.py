"""The gate: which caller a request is from. By the key in its head, or by the session in its cookie.

A key that is wrong counts against the address that it came from (`forebay.access.failed_attempts`): 429 with
`Retry-After` when there were too many different ones. A request without any key does not count: it guesses nothing.

**Sessions.** `POST /api/v1/session` with a key sets a cookie with a random id (`HttpOnly`, `SameSite=Strict`, `Secure`
under TLS). The store keeps its digest beside that of the key, so that any server of the store knows it; a server
remembers sessions that it has looked up, until keys or sessions change. A browser sends the cookie with whatever a page
makes it send, so a request that changes something has to show that a page of ours made it: by `Sec-Fetch-Site` or
`Origin` (`browsers`), and by the header `X-Forebay: 1`, which no form and no link can add.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http.cookies import CookieError, SimpleCookie

from forebay.access import sessions
from forebay.access.digests import digest_of, new_session_id
from forebay.access.failed_attempts import FailedAttempts
from forebay.access.values import Session
from forebay.api.access import Access, given_key, unauthorized
from forebay.api.callers import ANY_CALLER, Caller
from forebay.api.exchange import Request
from forebay.api.problems import Problem
from forebay.broker.store import Store
from forebay.clock import Clock

COOKIE = "forebay_session"
OWN_HEADER = b"x-forebay"
SESSIONS_REMEMBERED_MAX = 10_000


class Gate:
    def __init__(
        self,
        store: Store,
        access: Access,
        clock: Clock,
        session_seconds: float,
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_store` raises where the store cannot answer yet."""
        self._store = store
        self._check_store = check_store
        self._access = access
        self._clock = clock
        self._session_seconds = session_seconds
        self._attempts = FailedAttempts()
        self._sessions: dict[str, Session] = {}

    def forget_sessions(self) -> None:
        """Keys or sessions have changed: ask again."""
        self._sessions.clear()

    async def caller_of(self, request: Request, *, changes: bool) -> Caller:
        """Raise 401, 403 or 429 where there is none. `changes`: the request is no mere question."""
        if not self._access.is_in_force:
            return ANY_CALLER
        digest = given_key(request.headers)
        if digest is not None:
            caller = self.caller_with(digest, request.address)
            self._access.remember(request.headers, request.address, caller)
            return caller
        session_id = session_id_of(request)
        if session_id is None:
            raise unauthorized("a key is needed: Authorization: Bearer KEY, or X-API-Key: KEY")
        caller, _ = await self.session_of(request, session_id)
        if changes:
            check_own_page(request)
        return caller

    def caller_with(self, digest: str, address: str) -> Caller:
        """The caller whose key has this digest."""
        self._check_attempts(address, digest)
        caller = self._access.of_digest(digest)
        if caller is None:
            self._attempts.note_wrong(address, digest, self._clock.monotonic())
            raise unauthorized("the key is not known")
        self._attempts.note_right(address, digest)
        return caller

    def _check_attempts(self, address: str, digest: str) -> None:
        seconds = self._attempts.seconds_to_wait(address, digest, self._clock.monotonic())
        if seconds:
            raise Problem(
                429,
                f"too many wrong keys from {address}; come back in {seconds} s",
                code="too_many_attempts",
                headers=((b"retry-after", b"%d" % seconds),),
            )

    async def sign_in(self, caller: Caller) -> tuple[str, Session]:
        """The id of a new session, for the cookie."""
        self._check_store()
        session_id, digest = new_session_id()
        session = await self._store.together(partial(sessions.begin, digest, caller.digest, self._session_seconds))
        return session_id, session

    async def sign_out(self, session_id: str) -> None:
        self._check_store()
        digest = digest_of(session_id)
        self._sessions.pop(digest, None)
        await self._store.together(partial(sessions.end, digest))

    async def session_of(self, request: Request, session_id: str) -> tuple[Caller, Session]:
        digest = digest_of(session_id)
        session = self._sessions.get(digest)
        if session is None:
            # Each unknown id costs a look at the store, so they are limited like wrong keys.
            self._check_attempts(request.address, digest)
            self._check_store()
            session = await self._store.look(partial(sessions.find, digest))
        caller = None if session is None else self._access.of_digest(session.key_digest)
        if session is None or caller is None or session.expires_us <= self._clock.now_us():
            self._sessions.pop(digest, None)
            self._attempts.note_wrong(request.address, digest, self._clock.monotonic())
            raise unauthorized("the session is over: sign in again")
        if len(self._sessions) >= SESSIONS_REMEMBERED_MAX:
            self._sessions.clear()
        self._sessions[digest] = session
        return caller, session


def check_own_page(request: Request) -> None:
    """Raise 403 unless a page of this server has made the request."""
    if request.header(OWN_HEADER).strip() != b"1":
        raise Problem(403, "with a cookie this needs the header X-Forebay: 1", code="foreign_page")


def session_id_of(request: Request) -> str | None:
    """What the cookie of ours holds."""
    for name, value in request.headers:
        if name == b"cookie" and COOKIE.encode() in value:
            try:
                found = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                return None
            return found.value if found is not None else None
    return None
