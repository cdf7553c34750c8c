"""Sign-in of the web page with a key: `forebay.api.gate` says how sessions work."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from forebay.access.digests import digest_of
from forebay.api.access import given_key
from forebay.api.callers import NO_KEYS, Caller
from forebay.api.exchange import Request, Response
from forebay.api.gate import COOKIE, check_own_page, session_id_of
from forebay.api.large_bodies import read_body
from forebay.api.problems import Problem
from forebay.api.responses import answered, iso
from forebay.api.routing import Route, Scope
from forebay.api.service import Service

KEY_CHARACTERS_MAX = 1_000
_NOT_KEPT = (b"cache-control", b"no-store")


class SignInBody(Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX)]


class SessionShape(Struct, rename="camel"):
    """The key that requests from here come with, and what it may do."""

    keys_in_force: bool
    signed_in: bool
    """True also where the request brings its key itself, and where no keys are in force."""
    name: str | None
    scopes: list[str]
    queues: list[str]
    """Patterns; none: all queues."""
    expires_at: str | None
    """Of the session; null where there is none."""


class SignedOut(Struct):
    success: bool


async def show_session(service: Service, request: Request) -> Response:
    """Needs no key: a page asks this first."""
    if not service.access.is_in_force:
        return _answer(SessionShape(False, True, NO_KEYS, ["admin"], [], None))
    digest, session_id, expires_at = given_key(request.headers), session_id_of(request), None
    try:
        if digest is not None or session_id is None:
            caller = await service.gate.caller_of(request, changes=False)
        else:
            caller, session = await service.gate.session_of(request, session_id)
            expires_at = iso(session.expires_us)
    except Problem as problem:
        if problem.status != 401:
            raise
        return _answer(SessionShape(True, False, None, [], [], None))
    return _answer(_shape(caller, expires_at))


def _shape(caller: Caller, expires_at: str | None) -> SessionShape:
    queues = [] if caller.patterns is None else list(caller.patterns.patterns)
    return SessionShape(True, True, caller.name, caller.scopes, queues, expires_at)


def _answer(shape: SessionShape | SignedOut, *more: tuple[bytes, bytes]) -> Response:
    return answered(shape)._replace(headers=(_NOT_KEPT, *more))


async def sign_in(service: Service, request: Request) -> Response:
    """Sets a cookie. 401 for a key that does not count, 409 where no keys are in force, 429 after too many attempts."""
    body = await read_body(SignInBody, request)
    if not service.access.is_in_force:
        raise Problem(409, "no keys are in force here: there is nothing to sign in with", code="no_keys")
    # What was copied from a terminal may have a blank behind it, as in a header.
    caller = service.gate.caller_with(digest_of(body.key.strip()), request.address)
    session_id, session = await service.gate.sign_in(caller)
    caller.is_used = True
    seconds = max(0, (session.expires_us - service.clock.now_us()) // 1_000_000)
    return _answer(_shape(caller, iso(session.expires_us)), _cookie(service, request, session_id, seconds))


async def sign_out(service: Service, request: Request) -> Response:
    """Ends the session everywhere, and removes the cookie."""
    session_id = session_id_of(request)
    if session_id is not None:
        check_own_page(request)
        await service.gate.sign_out(session_id)
    return _answer(SignedOut(True), _cookie(service, request, "", 0))


def _cookie(service: Service, request: Request, value: str, seconds: int) -> tuple[bytes, bytes]:
    """A proxy in front that speaks TLS says so; the word of a client concerns its own cookie alone."""
    is_secure = service.is_tls or request.header(b"x-forwarded-proto").strip().lower() == b"https"
    text = f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
    return b"set-cookie", text.encode()


_SESSION = "/api/v1/session"

ROUTES = (
    Route(
        "GET",
        _SESSION,
        show_session,
        "Which key requests come with, and whether one is needed.",
        Scope.OPEN,
        answers={200: SessionShape},
        problems=(429, 503),
    ),
    Route(
        "POST",
        _SESSION,
        sign_in,
        "Sign in with a key.",
        Scope.OPEN,
        answers={200: SessionShape},
        body=SignInBody,
        problems=(400, 401, 403, 409, 413, 415, 429, 503, 507),
    ),
    Route(
        "DELETE",
        _SESSION,
        sign_out,
        "Sign out.",
        Scope.OPEN,
        answers={200: SignedOut},
        problems=(403, 503, 507),
    ),
)
